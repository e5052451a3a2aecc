"""Keys as they are pressed, without Enter."""

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[Z": "backtab",
    "\t": "tab",
    "\x1b": "escape",
    "\x03": "ctrl-c",
    "\x04": "ctrl-d",
}


class Keys:
    """Reads keys from a terminal; none ever come from anything else."""

    def __init__(self, file: int | None) -> None:
        self._file = file

    def pressed(self, seconds: float) -> list[str]:
        """The keys pressed within `seconds`, as soon as there are any; an end of input reads as `ctrl-d`."""
        if self._file is None:
            select.select([], [], [], seconds)
            return []
        ready, _, _ = select.select([self._file], [], [], seconds)
        if not ready:
            return []
        text = os.read(self._file, 256).decode("utf-8", "replace")
        return list(_names(text)) if text else ["ctrl-d"]


def _names(text: str) -> Iterator[str]:
    while text:
        length = next((n for n in (3, 1) if text[:n] in NAMES), 1)
        yield NAMES.get(text[:length], text[0])
        text = text[length:]


@contextmanager
def keys() -> Iterator[Keys]:
    """The terminal's keys while the context is open; the terminal is put back as it was."""
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield Keys(file)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
