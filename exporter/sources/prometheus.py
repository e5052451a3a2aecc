"""History of vLLM pages out of a Prometheus server, as one reading per engine and scrape.

Raw samples are asked for (an instant query of a range selector), not a grid: every scrape keeps its own time, gaps
stay gaps, and no value is made up in between. The span is cut into pieces small enough for the server's limits.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from exporter.errors import InputError
from exporter.reading import EngineReading
from exporter.sources.endpoint import Endpoint
from exporter.sources.engines import assemble
from exporter.sources.vllm_names import PREFIXES, places

SOURCE = "prometheus"
PIECE_SECONDS = 600.0
"""Of history in one answer: about 80,000 samples of one engine read every second."""
ANSWER_LIMIT_BYTES = 256 * 1024 * 1024
TARGET_LABELS = ("job", "instance", "pod", "namespace")
"""Which labels tell one vLLM server from another in Prometheus; vLLM itself sets none of them."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape of one server: `time` is Unix seconds."""

    target: str
    time: float
    engines: tuple[EngineReading, ...]


class History:
    """Reads one Prometheus server."""

    def __init__(self, endpoint: Endpoint, matcher: str = "") -> None:
        """`matcher`: further label matchers, as in PromQL (`namespace="prod"`), to narrow the search."""
        self._endpoint = endpoint
        self._selector = _selector(matcher)

    def scrapes(self, start: float, end: float) -> Iterator[Scrape]:
        """Every scrape of every vLLM server from `start` to `end` (Unix seconds), in order of time within a piece.

        Raises:
            InputError: The server has no vLLM series in that span, or does not understand the query.
            SourceError: The server cannot be read.
        """
        found, at = False, start
        while at < end:
            until = min(at + PIECE_SECONDS, end)
            for scrape in self._piece(at, until):
                found = True
                yield scrape
            at = until
        if not found:
            raise InputError(self._refusal())

    def _piece(self, start: float, end: float) -> Iterator[Scrape]:
        result = self._query(f"{self._selector}[{max(1, round(end - start))}s]", end)
        pages: dict[tuple[float, str], list[tuple[str, Mapping[str, str], float]]] = {}
        for series in result:
            labels, values = self._series(series)
            name = labels.pop("__name__", "")
            target = "/".join(labels.pop(label) for label in TARGET_LABELS if label in labels)
            for time, value in values:
                # A range selector holds both its ends in some versions: the left one belongs to the piece before.
                if start < time <= end:
                    pages.setdefault((time, target), []).append((name, labels, value))
        for (time, target), samples in sorted(pages.items()):
            yield Scrape(target, time, assemble(samples, time))

    def _query(self, query: str, at: float | None) -> list[Any]:
        asked = {"query": query} if at is None else {"query": query, "time": f"{at:.3f}"}
        with self._endpoint.get(f"/api/v1/query?{urlencode(asked)}", "application/json", ANSWER_LIMIT_BYTES) as body:
            text = b"".join(body)
        try:
            answer = json.loads(text)
            if answer["status"] != "success":
                raise InputError(
                    f"{self._endpoint.base_url} refuses the query: {answer.get('error', 'no reason given')}"
                )
            result = answer["data"]["result"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._stranger() from None
        return list(result) if isinstance(result, list) else []

    def _series(self, series: Any) -> tuple[dict[str, str], list[tuple[float, float]]]:
        """The labels and the samples of one entry of a matrix."""
        try:
            labels = dict(series["metric"])
            values = [(float(time), float(value)) for time, value in series["values"]]
        except (ArithmeticError, KeyError, TypeError, ValueError):
            raise self._stranger() from None
        if not all(isinstance(value, str) for value in labels.values()):
            raise self._stranger()
        return labels, values

    def _stranger(self) -> InputError:
        return InputError(f"{self._endpoint.base_url} does not answer as Prometheus does; is it one?")

    def _refusal(self) -> str:
        series = self._query("count({__name__=~'.+'})", None)
        try:
            others = f"{int(float(series[0]['value'][1])):,} other series are there" if series else "nor any other now"
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
            raise self._stranger() from None
        return (
            f"{self._endpoint.base_url} has no vLLM series in that span ({others}); "
            "check --start and --end, and that this Prometheus scrapes vLLM's /metrics"
        )


def _selector(matcher: str) -> str:
    """Every name that is read, under every prefix, in one pattern short enough for a URL."""
    own = PREFIXES[0]
    names = "|".join(sorted(name.removeprefix(own) for name in places((own,)) if name.startswith(own)))
    pattern = f'__name__=~"({"|".join(PREFIXES)})({names})"'
    return "{" + ", ".join(part for part in (pattern, matcher) if part) + "}"
