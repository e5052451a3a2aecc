"""Where the view gets its status from: an exporter's document, or a vLLM server that is read right here."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from exporter.assembly import build_monitor
from exporter.errors import SourceError
from exporter.history import History
from exporter.settings import Settings
from exporter.sources.endpoint import Access, Endpoint
from exporter.web.status import Past, Status
from exporter.web.telling import WINDOWS, tell

NOT_AN_EXPORTER = ("http_404", "http_405", "not_ours")
STALE_SECONDS = 10.0
_LARGEST = 10**18
"""An exabyte; a number beyond it, or none at all, cannot be drawn."""


class Feed(Protocol):
    """One server's status, on demand; raises `SourceError`."""

    def read(self, window: int) -> Status:
        """The status now, its history `window` seconds long."""

    def close(self) -> None:
        """Let go of it."""


class ExporterFeed:
    """The status document of a vllm-headroom that runs elsewhere."""

    def __init__(self, url: str, access: Access) -> None:
        self._endpoint = Endpoint("exporter", url, access)
        self._document: TypeAdapter[Status] = TypeAdapter(Status)

    def read(self, window: int) -> Status:
        """GET the document once."""
        with self._endpoint.get(f"/api/v1/status?window={window}", "application/json") as body:
            kind, text = body.content_type, b"".join(body)
        if kind != "application/json":
            raise SourceError("exporter", "not_ours", f"{self._endpoint.base_url} serves no status document")
        try:
            status = self._document.validate_json(text)
        except (ValidationError, RecursionError):
            status = None
        if status is None or not (_bounded(status) and all(_sound(engine.history) for engine in status.engines)):
            fault = f"{self._endpoint.base_url} serves a status document of another version; use its own vllm-headroom"
            raise SourceError("exporter", "other_version", fault)
        return status

    def close(self) -> None:
        """Give the connection back."""
        self._endpoint.close()


def _sound(history: Past) -> bool:
    """Whether every series of an engine's past has a value, or none, for each of its points."""
    points = len(history.seconds_ago)
    series = (history.used_ratio, history.preemptions, history.running, history.waiting)
    return all(len(values) == points for values in series)


def _bounded(value: Any) -> bool:
    """Whether every number is one, and of a size that something can have."""
    if isinstance(value, int | float):
        return -_LARGEST < value < _LARGEST
    if isinstance(value, tuple):
        return all(map(_bounded, value))
    if isinstance(value, dict):
        return all(map(_bounded, value.values()))
    return not is_dataclass(value) or all(_bounded(getattr(value, field.name)) for field in fields(value))


class VllmFeed:
    """A vLLM server, read and assessed in this process as `run` would; the past starts now."""

    def __init__(self, settings: Settings) -> None:
        self._history = History()
        self._monitor = build_monitor(settings)

    def read(self, window: int) -> Status:
        """Tick once and tell what it saw."""
        snapshot = self._monitor.tick()
        self._history.add(snapshot)
        return tell(snapshot, self._history, snapshot.time, STALE_SECONDS, window)

    def close(self) -> None:
        """Give connections back."""
        self._monitor.close()


class AnyFeed:
    """An exporter or a vLLM server: which one is found out by asking, until one has answered."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._settings = settings.model_copy(update={"vllm_url": (url,), "gpus": ("none",), "host": "none"})
        access = Access(
            timeout_seconds=settings.vllm_timeout_seconds,
            api_key_file=settings.page_bearer_token_file or settings.api_key_file,
            tls_ca_file=settings.tls_ca_file,
            tls_skip_verify=settings.tls_skip_verify,
        )
        self._feed: Feed = ExporterFeed(url, access)

    def read(self, window: int) -> Status:
        """The status of whichever it is."""
        try:
            return self._feed.read(window)
        except SourceError as error:
            if isinstance(self._feed, VllmFeed) or error.reason not in NOT_AN_EXPORTER:
                raise
        self._feed.close()
        self._feed = VllmFeed(self._settings)
        return self._feed.read(window)

    def close(self) -> None:
        """Let go of it."""
        self._feed.close()


@dataclass(frozen=True, slots=True)
class Seen:
    """What one server showed last: its status, or why there is none."""

    server: str
    status: Status | None = None
    fault: str = "has not answered yet"


class Reader:
    """Reads one feed over and over in a thread of its own, so that a slow server delays nobody."""

    def __init__(self, url: str, feed: Feed, interval: float) -> None:
        self.seen = Seen(urlsplit(url).netloc)
        self.window = WINDOWS[-1]
        self._feed = feed
        self._interval = interval
        self._wake = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"read {url}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def show(self, window: int) -> None:
        """Read again at once, with this window."""
        if window != self.window:
            self.window = window
            self._wake.set()

    def close(self) -> None:
        """Stop; a read that is under way is left behind."""
        self._done.set()
        self._wake.set()

    def _read(self) -> None:
        while not self._done.is_set():
            begun = time.monotonic()
            self.seen = once(self.seen.server, self._feed, self.window)
            if self._wake.wait(max(0.0, self._interval - (time.monotonic() - begun))):
                self._wake.clear()
        self._feed.close()


def once(server: str, feed: Feed, window: int) -> Seen:
    """One reading of a feed."""
    try:
        return Seen(server, printable(feed.read(window)), "")
    except SourceError as error:
        return Seen(server, None, printable(str(error)))


def printable(value: Any) -> Any:
    """The same value with every character replaced that could drive a terminal: names come from outside."""
    if isinstance(value, str):
        return value if value.isprintable() else "".join(c if c.isprintable() else "�" for c in value)
    if isinstance(value, tuple):
        return tuple(map(printable, value))
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: printable(getattr(value, field.name)) for field in fields(value)})
    return value


def readers(urls: Sequence[str], make: Callable[[str], Feed], interval: float) -> tuple[Reader, ...]:
    """One reader for each server."""
    return tuple(Reader(url, make(url), interval) for url in urls)
