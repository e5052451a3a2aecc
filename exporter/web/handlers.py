"""What answers for the status page and the status document; each is made once a tick, however many ask."""

import math
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from exporter.history import History
from exporter.server import Request, Response
from exporter.snapshot import Snapshot
from exporter.web.page import OPEN_ALL, Page
from exporter.web.status import Status
from exporter.web.telling import POINTS, WINDOWS, tell

Render = Callable[[Status, int], bytes]

MANY_POINTS = 120
"""Of each engine's past, where the page shows many engines."""
SHARE = 0.003
"""Of a core: an open page asks anew no more often than making it may take of that."""
LEAST_SECONDS, MOST_SECONDS = 2, 15


class StatusPages:
    """The page and the document over one snapshot and one history.

    `stale_seconds` is how old the last tick may be before it is said to be old.
    """

    def __init__(
        self,
        latest: Callable[[], Snapshot | None],
        history: History,
        clock: Callable[[], float],
        stale_seconds: float,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._latest = latest
        self._history = history
        self._clock = clock
        self._stale_seconds = stale_seconds
        self._cpu = cpu
        self._page = Page()
        self._every = LEAST_SECONDS
        self._encode: Callable[[Status], bytes] | None = None
        self._made_for: tuple[Snapshot, int] | None = None
        self._made: dict[tuple[str, int], bytes] = {}
        self._headers = {
            "Content-Security-Policy": self._page.policy,
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }

    def page(self, request: Request) -> Response:
        """`/`: the status page."""
        window = _window(request.query)
        snapshot = self._latest()
        if window is None:
            return _refused()
        if snapshot is None:
            body = self._page.before_the_first().encode()
        else:
            points = POINTS if len(snapshot.engines) <= OPEN_ALL else MANY_POINTS
            body = self._body("page", snapshot, window, points, lambda status: self._html(status, window))
        return Response(200, "text/html; charset=utf-8", body, self._headers)

    def document(self, request: Request) -> Response:
        """`/api/v1/status`: the status document."""
        window = _window(request.query)
        snapshot = self._latest()
        if window is None:
            return _refused()
        if snapshot is None:
            return Response(503, "application/json", b'{"error":"nothing has been read yet"}\n')
        body = self._body("document", snapshot, window, POINTS, self._json)
        return Response(200, "application/json", body, {"Cache-Control": "no-store"})

    def _body(
        self, form: str, snapshot: Snapshot, window: int, points: int, render: Callable[[Status], bytes]
    ) -> bytes:
        """One form of one tick; made anew when a tick has grown older by a second, so that a stuck one shows."""
        now = self._clock()
        made_for = snapshot, int(now - snapshot.time)
        if self._made_for is None or made_for[0] is not self._made_for[0] or made_for[1] != self._made_for[1]:
            self._made_for, self._made = made_for, {}
        body = self._made.get((form, window))
        if body is None:
            begun = self._cpu()
            body = render(tell(snapshot, self._history, now, self._stale_seconds, window, points))
            if form == "page":
                self._every = min(MOST_SECONDS, max(LEAST_SECONDS, math.ceil((self._cpu() - begun) / SHARE)))
            self._made[form, window] = body
        return body

    def _html(self, status: Status, window: int) -> bytes:
        return self._page.of(status, window, self._every).encode()

    def _json(self, status: Status) -> bytes:
        if self._encode is None:
            from pydantic import TypeAdapter  # built when first asked for: its plan of the document takes memory

            adapter: TypeAdapter[Any] = TypeAdapter(Status)
            self._encode = adapter.dump_json
        return self._encode(status) + b"\n"


def _window(query: str) -> int | None:
    """The window asked for, the longest when none is; `None` when it is not one of ours."""
    asked = parse_qs(query).get("window", [str(WINDOWS[-1])])[-1]
    return next((window for window in WINDOWS if str(window) == asked), None)


def _refused() -> Response:
    allowed = ", ".join(map(str, WINDOWS))
    return Response.text(400, f"window must be one of {allowed} (seconds)")
