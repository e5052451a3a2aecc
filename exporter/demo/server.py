"""The embedded engine as a server: it runs at a pace and answers the pages that vLLM answers."""

import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, Self

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from exporter.demo.engine import DemoEngine
from exporter.demo.page import PageCollector
from exporter.errors import UsageError
from exporter.server import HttpServer, Request, Response

VERSION = "0.32.0"
"""The vLLM release whose page and scheduling the embedded engine follows."""

BEAT_SECONDS = 0.02
LONGEST_BEAT_SECONDS = 0.25
"""A machine too slow for the pace slows engine time down instead of falling ever further behind."""


class DemoServer:
    """Serves `engines` on one port (0 takes a free one) and runs them at `speed` engine seconds a second.

    At speed 0 nothing moves but by `advance`. `unread_seconds` is the most engine time that passes without its page
    being read, so that a reader slower than the pace misses nothing. `model_root` is what `/v1/models` names as the
    model's directory.
    """

    def __init__(
        self,
        engines: Sequence[DemoEngine] = (),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        speed: float = 1.0,
        unread_seconds: float = math.inf,
        model_root: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engines = tuple(engines) or (DemoEngine(),)
        self.speed = speed
        self._model_root = model_root or str(files("exporter.demo").joinpath("model"))
        self._clock = clock
        self._created = time.time()
        self._time = 0.0
        self._unread_seconds = unread_seconds
        self._read_at = 0.0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._registry = CollectorRegistry(auto_describe=False)
        GCCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        ProcessCollector(registry=self._registry)
        self._registry.register(PageCollector(self.engines, self._created))
        self._address = host, port
        self._http: HttpServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL, as a vLLM server's; raises `UsageError` before the start."""
        if self._http is None:
            raise UsageError("the embedded engine is not serving yet")
        return self._http.url

    def now(self) -> float:
        """Engine time in seconds; it never runs backwards."""
        return self._time

    def start(self) -> None:
        """Serve, and run the engines if there is a pace; raises `UsageError` when the port is taken."""
        http = HttpServer(*self._address, self._answer)
        http.start()
        self._http = http
        if self.speed:
            self._thread.start()

    def close(self) -> None:
        """Stop running and serving; may be called twice."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        if self._http is not None:
            self._http.close()

    def advance(self, seconds: float) -> None:
        """Let `seconds` of engine time pass now."""
        with self._lock:
            until = self._time + seconds
            for engine in self.engines:
                engine.advance(until)
            self._time = until

    def _run(self) -> None:
        last = self._clock()
        while not self._stop.wait(BEAT_SECONDS):
            now = self._clock()
            wanted = min(now - last, LONGEST_BEAT_SECONDS) * self.speed
            allowed = self._read_at + self._unread_seconds - self._time
            if allowed > 0:
                self.advance(min(wanted, allowed))
            last = now

    def _answer(self, request: Request) -> Response:
        if request.path == "/metrics":
            return self._metrics(request)
        if request.path == "/health":
            return Response(200, "text/plain; charset=utf-8", b"")
        if request.path == "/version":
            return _json(200, {"version": VERSION})
        if request.path == "/v1/models":
            return _json(200, self._models())
        return _json(404, {"detail": "Not Found"})

    def _metrics(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        with self._lock:
            self._read_at = self._time
            return Response(200, content_type, encode(self._registry))

    def _models(self) -> dict[str, Any]:
        config = self.engines[0].config
        model = {
            "id": config.model_name,
            "object": "model",
            "created": int(self._created),
            "owned_by": "vllm",
            "root": self._model_root,
            "parent": None,
            "max_model_len": config.limits.max_model_len,
            "permission": [],
        }
        return {"object": "list", "data": [model]}


def _json(status: int, value: object) -> Response:
    return Response(status, "application/json", json.dumps(value, separators=(",", ":")).encode())
