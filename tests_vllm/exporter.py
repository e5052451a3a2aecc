"""`vllm-headroom run` as a process of its own beside the server, and every page it made, once a tick."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from tests.support.daemon import Page
from tests_vllm.server import free_port

LOOK_SECONDS = 0.2
TICK = re.compile(r"^vllm_headroom_last_tick_timestamp_seconds .*$", re.MULTILINE)
START_SECONDS = 180.0
"""A second on an idle machine."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the exporter said after one tick. Times are Unix seconds; the server's page was read between them."""

    begun: float
    ended: float
    page: Page

    def value(self, name: str, **labels: str) -> float | None:
        """The one sample of a family."""
        return self.page.value(name, **labels)

    @property
    def used(self) -> float | None:
        """Blocks held in engine 0."""
        return self.page.value("kv_used_blocks", engine="0")

    @property
    def predicted(self) -> bool:
        """Whether the alarm is on for any engine."""
        return 1.0 in self.page.values("oom_predicted", risk="kv").values()

    @property
    def driver(self) -> str | None:
        """The driver that is named for engine 0."""
        drivers = self.page.values("risk_driver", engine="0")
        return next((dict(labels)["driver"] for (_, labels), value in drivers.items() if value == 1), None)


class Exporter:
    """The daemon that watches `url`; a context manager. `readings` grows by one with every tick."""

    def __init__(self, url: str, log: Path, **settings: str) -> None:
        """`settings` by name, as in `api_key_file="…"`; nothing else is set but where to listen."""
        self.readings: list[Reading] = []
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = log
        self._settings = {"vllm_url": url, "listen": self.url.removeprefix("http://")} | settings
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="look", daemon=True)

    def __enter__(self) -> Self:
        ours = {f"VLLM_HEADROOM_{name.upper()}": value for name, value in self._settings.items()}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "exporter", "run"], env={**os.environ, **ours}, stdout=log, stderr=log
            )
        self._thread.start()
        try:
            self.wait(lambda _: True, START_SECONDS, "its first tick")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    @property
    def last(self) -> Reading:
        """The newest reading."""
        return self.readings[-1]

    def since(self, at: float) -> list[Reading]:
        """Readings whose tick began at or after `at`."""
        return [reading for reading in self.readings if reading.begun >= at]

    def next(self, ticks: int = 1, seconds: float = 60.0) -> Reading:
        """The reading after `ticks` more ticks that begin after now."""
        now, until = time.time(), time.monotonic() + seconds
        while len(after := self.since(now)) < ticks:
            self._patience(until, f"{ticks} more ticks")
        return after[ticks - 1]

    def wait(self, wanted: Callable[[Reading], bool], seconds: float, what: str = "what is waited for") -> Reading:
        """The first reading from now on, the newest included, that is as wanted; raises when none comes in time."""
        until, seen = time.monotonic() + seconds, max(0, len(self.readings) - 1)
        while True:
            for reading in self.readings[seen:]:
                seen += 1
                if wanted(reading):
                    return reading
            self._patience(until, what)

    def status(self) -> Mapping[str, Any]:
        """The status document now."""
        document: Mapping[str, Any] = httpx.get(f"{self.url}/api/v1/status", timeout=60).raise_for_status().json()
        return document

    def said(self) -> str:
        """What it has logged."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _patience(self, until: float, what: str) -> None:
        if time.monotonic() > until:
            states = self.readings[-1].page.values("state") if self.readings else {}
            raise TimeoutError(f"{what}: did not come in time; {[key for key, value in states.items() if value]}")
        assert self._process is None or self._process.poll() is None, self.said()
        time.sleep(0.05)

    def _look(self) -> None:
        seen = ""
        with httpx.Client(base_url=self.url, timeout=30) as client:
            while not self._stop.wait(LOOK_SECONDS):
                try:
                    text = client.get("/metrics").text
                except httpx.HTTPError:
                    continue
                # A page takes longer to parse than to fetch, and changes once a tick.
                tick = TICK.search(text)
                if tick is None or tick[0] == seen:
                    continue
                seen = tick[0]
                page = Page(text)
                ended = page.value("last_tick_timestamp_seconds")
                assert ended is not None
                self.readings.append(Reading(ended - (page.value("tick_duration_seconds") or 0.0), ended, page))
