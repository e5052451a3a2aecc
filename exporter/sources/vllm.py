"""What vLLM says of itself: the metrics page once a tick, its models and version now and then."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from exporter.errors import SourceError
from exporter.reading import MOST, EngineReading
from exporter.sources.deadline import Clock
from exporter.sources.endpoint import Access, Body, Endpoint
from exporter.sources.engines import assemble
from exporter.sources.layout import Assembler
from exporter.sources.page import PageParser
from exporter.sources.samples import Sample
from exporter.sources.vllm_names import PREFIXES

__all__ = ["Access", "PageReading", "ServedModel", "VllmSource", "assemble"]

SOURCE = "vllm"
# prometheus_client sends OpenMetrics whenever it is named, whatever its weight, and then without colons in names.
_PAGE = "text/plain;version=0.0.4, */*;q=0.1"
MAX_SAMPLES = 32_768
"""Of one page that concern us: an engine has about a hundred, so a page as large as is read has no more."""
_JSON_LIMIT_BYTES = 1024 * 1024
_OTHER_TYPES = ("text/html", "text/plain", "application/json", "application/xml", "application/octet-stream")
"""What a wrong address most likely answers; another type is not quoted."""
_MAX_MODELS = 1_000
_MAX_TEXT = 512


@dataclass(frozen=True, slots=True)
class PageReading:
    """One reading of the page. Engines are in the order of model and engine label."""

    time: float
    """When the server answered, by the clock given to the source."""
    engines: tuple[EngineReading, ...]
    duration_seconds: float
    size_bytes: int
    """Of the page, after decompression if there was any."""
    malformed_lines: int
    """Lines that are no sample; each cost itself and nothing else."""
    names: Mapping[str, str]
    """Concept → the name under which it was found, on whichever engine came first."""
    process_start_time: float | None = None
    """Seconds since the epoch; absent when several processes write the page."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One entry of `/v1/models`; `root` is the path or id the weights came from, adapters name their `parent`."""

    id: str
    root: str | None = None
    max_model_len: int | None = None
    parent: str | None = None


class VllmSource:
    """One vLLM server, read over one kept connection by one thread."""

    def __init__(
        self,
        base_url: str,
        access: Access | None = None,
        prefixes: tuple[str, ...] = PREFIXES,
        transport: httpx.BaseTransport | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`base_url` may have a root path. Nothing is sent before the first read."""
        self._endpoint = Endpoint(SOURCE, base_url, access or Access(), transport, clock)
        self._parser = PageParser(prefixes)
        self._assembler = Assembler(prefixes)
        self._prefixes = prefixes
        self._clock = clock

    def read(self) -> PageReading:
        """The page now, with one request. Raises `SourceError` when there is none that can be believed."""
        begun = self._clock()
        with self._endpoint.get("/metrics", _PAGE) as body:
            engines = self._assembler.readings(self._samples(body), body.answered)
            if not engines:
                raise self._nothing(body)
        names: dict[str, str] = {}
        for engine in reversed(engines):
            names.update(engine.names)
        return PageReading(
            time=body.answered,
            engines=engines,
            duration_seconds=self._clock() - begun,
            size_bytes=body.size,
            malformed_lines=self._parser.malformed,
            names=names,
            process_start_time=self._parser.process_start_time,
        )

    def read_models(self) -> tuple[ServedModel, ...]:
        """What the server serves, adapters included. Raises `SourceError`."""
        answer = self._json("/v1/models")
        entries = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(entries, list):
            raise SourceError(SOURCE, "not_json", f"{self._endpoint.base_url}/v1/models does not list models")
        found = (_model(entry) for entry in entries[:_MAX_MODELS])
        return tuple(model for model in found if model is not None)

    def read_version(self) -> str:
        """The server's version as it writes it. Raises `SourceError`."""
        answer = self._json("/version")
        version = _text(answer.get("version")) if isinstance(answer, dict) else None
        if version is None:
            raise SourceError(SOURCE, "not_json", f"{self._endpoint.base_url}/version does not name a version")
        return version

    def close(self) -> None:
        """Close the connection."""
        self._endpoint.close()

    def _json(self, path: str) -> Any:
        with self._endpoint.get(path, "application/json", _JSON_LIMIT_BYTES) as body:
            text = b"".join(body)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise SourceError(SOURCE, "not_json", f"{body.url} does not answer with JSON") from None

    def _samples(self, body: Body) -> Iterator[Sample]:
        for number, sample in enumerate(self._parser.parse(body)):
            if number == MAX_SAMPLES:
                self._parser = PageParser(self._prefixes)  # so many series are not worth remembering
                raise SourceError(SOURCE, "too_large", f"{body.url} shows more than {MAX_SAMPLES} series of vLLM")
            yield sample

    def _nothing(self, body: Body) -> SourceError:
        if self._parser.recognised and body.content_type != "text/html":
            what = "has no vLLM metrics on its page; is this a vLLM server, and did its engine start?"
            return SourceError(SOURCE, "empty", f"{body.url} {what}")
        if body.size == 0:
            return SourceError(SOURCE, "empty", f"{body.url} is an empty page")
        kind = f" but {body.content_type}" if body.content_type in _OTHER_TYPES else ""
        return SourceError(SOURCE, "not_metrics", f"{body.url} is no metrics page{kind}")


def _model(entry: object) -> ServedModel | None:
    if not isinstance(entry, dict) or (name := _text(entry.get("id"))) is None:
        return None
    length = entry.get("max_model_len")
    told = isinstance(length, int) and not isinstance(length, bool) and 0 < length <= MOST
    return ServedModel(
        id=name,
        root=_text(entry.get("root")),
        max_model_len=length if told else None,
        parent=_text(entry.get("parent")),
    )


def _text(value: object) -> str | None:
    """A string fit to be shown and kept: not empty, not endless, without control characters."""
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_TEXT and value.isprintable() else None
