"""The demo put together: an embedded engine under a scenario, and the exporter beside it."""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

from exporter.assembly import build_monitor
from exporter.demo.engine import DemoEngine
from exporter.demo.gpu import DemoGpus
from exporter.demo.server import DemoServer
from exporter.demo.traffic import Scenario
from exporter.memory import DeviceWatch
from exporter.run import Daemon
from exporter.settings import Settings, load
from exporter.snapshot import Snapshot
from exporter.sources.device import ProcessView
from exporter.sources.gpus import GpuSource
from exporter.web.status import Status
from exporter.web.telling import tell

FASTEST_POLL_SECONDS = 1 / 30
"""However fast engine time goes, the page is not read more often than this in real time."""
STALE_POLLS = 10.0
UNREAD_POLLS = 2.0
"""Engine time waits for the exporter when it is this many readings ahead of it."""


class Demo:
    """Engine and exporter, both stopped together. Engine time is the exporter's clock, whatever the speed."""

    def __init__(
        self, scenario: Scenario, *, seed: int = 0, speed: float = 1.0, listen: str = "127.0.0.1:9488"
    ) -> None:
        self._engines = (DemoEngine(arrivals=scenario.requests(seed)),)
        self._interval = max(1.0, speed * FASTEST_POLL_SECONDS)
        self._server = DemoServer(self._engines, speed=speed, unread_seconds=UNREAD_POLLS * self._interval)
        self._speed = speed
        self._listen = listen
        self._open = ExitStack()
        self._daemon: Daemon | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def engine_url(self) -> str:
        """Where the embedded engine serves its page."""
        return self._server.url

    @property
    def url(self) -> str:
        """Where the exporter serves its pages; empty before the start."""
        return "" if self._daemon is None else self._daemon.url

    @property
    def latest(self) -> Snapshot | None:
        """The exporter's last tick."""
        return None if self._daemon is None else self._daemon.monitor.latest

    def status(self, window: int) -> Status | None:
        """What the exporter's status page tells, its history `window` seconds long; none before the first tick."""
        if self._daemon is None or self.latest is None:
            return None
        stale = STALE_POLLS * self._interval
        return tell(self.latest, self._daemon.history, self._server.now(), stale, window)

    def start(self) -> None:
        """Start both; raises `UsageError` when an address is taken or a setting is wrong."""
        with ExitStack() as started:
            started.enter_context(self._server)
            settings = self._settings()
            clock = self._server.now
            gpus = GpuSource(DemoGpus(self._blocks(), os.getpid()), processes=lambda _: _ours())
            monitor = build_monitor(settings, clock, time.time, devices=DeviceWatch(gpus))
            self._daemon = started.enter_context(Daemon(monitor, settings, clock, speed=self._speed))
            self._open = started.pop_all()

    def close(self) -> None:
        """Stop both; may be called twice."""
        self._open.close()

    def _settings(self) -> Settings:
        """What a user would configure beside this engine; environment and files may settle the rest."""
        limits = self._engines[0].config.limits
        flags = {
            "vllm_url": self._server.url,
            "listen": self._listen,
            "poll_interval_seconds": str(self._interval),
            "vllm_timeout_seconds": str(min(60.0, 5.0 * max(1.0, self._speed))),
            "gpus": "none",
            "host": "none",
            "max_num_seqs": str(limits.max_num_seqs),
            "max_num_batched_tokens": str(limits.max_num_batched_tokens),
            "watermark": str(limits.watermark),
        }
        return load(flags)

    def _blocks(self) -> Sequence[int]:
        return [engine.config.limits.num_gpu_blocks for engine in self._engines]


def _ours() -> ProcessView:
    pid = os.getpid()
    return ProcessView(server=frozenset({pid}), visible=lambda other: other == pid)
