"""What is served under which path."""

import gzip
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from exporter.exposition import Exposition
from exporter.history import History
from exporter.metrics import TABLE, SnapshotCollector
from exporter.server import Request, Response
from exporter.snapshot import Snapshot

if TYPE_CHECKING:
    from exporter.web.handlers import StatusPages

Encode = Callable[[Collector], bytes]

_RENAMING = ("escaping=dots", "escaping=values")
"""Forms in which names that need no escaping are escaped all the same, which is left to prometheus_client."""


class MetricsPage:
    """The metrics page, made once for each tick and form of it, however many scrape it."""

    def __init__(self, latest: Callable[[], Snapshot | None]) -> None:
        self._latest = latest
        self._exposition = Exposition()
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)
        self._made_for: Snapshot | None = None
        self._made: dict[tuple[str, bool], Response] = {}

    def __call__(self, request: Request) -> Response:
        """The page in the form the client accepts: text or OpenMetrics, gzipped or not."""
        snapshot = self._latest()
        if snapshot is not self._made_for:
            self._made_for, self._made = snapshot, {}
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        zipped = _accepts_gzip(request.headers.get("accept-encoding", ""))
        response = self._made.get((content_type, zipped))
        if response is None:
            body = self._body(snapshot, encode, content_type)
            headers = {"Vary": "Accept, Accept-Encoding"}
            if zipped:
                body = gzip.compress(body, compresslevel=3, mtime=0)
                headers["Content-Encoding"] = "gzip"
            response = Response(200, content_type, body, headers)
            self._made[content_type, zipped] = response
        return response

    def _body(self, snapshot: Snapshot | None, encode: Encode, content_type: str) -> bytes:
        process = encode(self._process)  # which ends the page where its form has an end
        if snapshot is None:
            return process
        if content_type.endswith(_RENAMING):
            registry = CollectorRegistry(auto_describe=False)
            registry.register(SnapshotCollector(lambda: snapshot))
            return encode(registry).removesuffix(b"# EOF\n") + process
        openmetrics = content_type.startswith("application/openmetrics-text")
        return self._exposition.written(TABLE, snapshot, openmetrics=openmetrics).encode() + process


def _accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header allows gzip; `gzip;q=0` forbids it."""
    for part in header.lower().split(","):
        coding, _, parameters = part.strip().partition(";")
        if coding.strip() in ("gzip", "*"):
            return parameters.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class Routes:
    """Dispatches a request to its page; everything not named here is 404.

    `stale_seconds` is how old the last tick may be before the exporter says it is not ready.
    """

    def __init__(
        self,
        latest: Callable[[], Snapshot | None],
        history: History,
        clock: Callable[[], float],
        stale_seconds: float,
    ) -> None:
        self._latest = latest
        self._history = history
        self._clock = clock
        self._stale_seconds = stale_seconds
        self._pages: dict[str, Callable[[Request], Response]] = {
            "/": lambda request: self._status.page(request),
            "/api/v1/status": lambda request: self._status.document(request),
            "/metrics": MetricsPage(latest),
            "/healthz": lambda _: Response.text(200, "ok"),
            "/readyz": self._ready,
        }

    def __call__(self, request: Request) -> Response:
        """Answer one request."""
        page = self._pages.get(request.path)
        if page is None:
            return Response.text(404, f"not found; try {', '.join(self._pages)}")
        return page(request)

    @cached_property
    def _status(self) -> "StatusPages":
        """Imported when somebody looks: most sidecars are only ever scraped, and need not hold what draws the page."""
        from exporter.web.handlers import StatusPages

        return StatusPages(self._latest, self._history, self._clock, self._stale_seconds)

    def _ready(self, _: Request) -> Response:
        """Ready is: the last tick is fresh. What vLLM does is no part of it."""
        snapshot = self._latest()
        if snapshot is None:
            return Response.text(503, "no tick yet")
        age = self._clock() - snapshot.time
        if age > self._stale_seconds:
            return Response.text(503, f"the last tick is {age:.1f} s old")
        return Response.text(200, "ok")
