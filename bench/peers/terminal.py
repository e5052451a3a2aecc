"""A program in a terminal of its own, and what it shows there."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyte

ROWS, COLUMNS = 60, 170


class Terminal:
    """Runs `command`; paints what it writes."""

    def __init__(self, command: Sequence[str | Path], home: Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._screen = pyte.Screen(COLUMNS, ROWS)
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        self.process = subprocess.Popen(
            command, cwd=home, stdin=slave, stdout=slave, stderr=slave, env=environment, preexec_fn=_own_terminal
        )
        os.close(slave)
        threading.Thread(target=self._paint, args=(pyte.ByteStream(self._screen),), daemon=True).start()

    @property
    def pid(self) -> int:
        """Of the program."""
        return self.process.pid

    def shown(self) -> str:
        """What stands on its screen now."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def wipe(self) -> None:
        """Clear the screen, so that of a program that prints line after line only what comes now is shown."""
        self._screen.reset()

    def end(self, seconds: float = 10.0) -> tuple[int | None, float]:
        """Send SIGTERM; the exit code (below 0: a signal; `None`: it had to be killed) and the seconds."""
        begun = time.monotonic()
        self.process.terminate()
        try:
            code: int | None = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        took = time.monotonic() - begun
        self.kill()
        return code, took

    def kill(self) -> None:
        """End it, however it is."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            os.close(self._master)

    def _paint(self, stream: pyte.ByteStream) -> None:
        with contextlib.suppress(OSError):  # the program is gone
            while data := os.read(self._master, 65536):
                stream.feed(data)


def _own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
