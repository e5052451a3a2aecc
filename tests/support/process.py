"""The daemon as a process of its own: its page, its log, its limits."""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.daemon import Page

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "exporter", "run", "--listen", "127.0.0.1:0")


class Process:
    """A running daemon; `log` is what it has written so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.log: list[str] = []
        self._process = process
        self._serves = threading.Event()
        self.url = ""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_until_it_serves(self) -> None:
        """Return once it has said where, or has ended."""
        self._serves.wait(30)
        assert self.url, f"it does not serve: {self.log}"

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def page(self) -> Page:
        """Its page now."""
        return Page(httpx.get(f"{self.url}/metrics", timeout=10).text)

    def until(self, wanted: Callable[[Page], bool], seconds: float = 20.0) -> Page:
        """The first page that is as wanted."""
        end = time.monotonic() + seconds
        while not wanted(page := self.page()):
            assert time.monotonic() < end, page.text
            time.sleep(0.05)
        return page

    def after(self, ticks: int, page: Page | None = None) -> Page:
        """The page once so many further ticks have ended, counted from `page` or from now."""
        counted = (page or self.page()).value("ticks_total") or 0.0
        return self.until(lambda page: (page.value("ticks_total") or 0.0) >= counted + ticks)

    def limit(self, kind: int, soft: int) -> None:
        """Set a soft limit of the process from outside; whatever it was may be set again."""
        _, hard = resource.prlimit(self.pid, kind)
        resource.prlimit(self.pid, kind, (soft, hard))

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def ended(self, seconds: float = 10.0) -> int:
        """The exit code, once it has ended."""
        code = self._process.wait(timeout=seconds)
        self._listener.join(seconds)
        return code

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self.log.append(line)
                if found := re.search(r"serves (https?://\S+)", line):
                    self.url = found[1]
                    self._serves.set()
        self._serves.set()


@contextmanager
def daemon(
    *flags: str, environment: Mapping[str, str] | None = None, directory: Path = ROOT, prefix: tuple[str, ...] = COMMAND
) -> Iterator[Process]:
    """`vllm-headroom run` with these flags."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    process = subprocess.Popen([*prefix, *flags], cwd=directory, env=variables, stderr=subprocess.PIPE, text=True)
    running = Process(process)
    try:
        running.wait_until_it_serves()
        yield running
    finally:
        process.kill()
        running.ended()
