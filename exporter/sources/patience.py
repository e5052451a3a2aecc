"""A read that may hang, kept from hanging the tick.

A call into a driver whose GPU is gone, or a read of a file whose lock another holds, can block in the kernel, and no
exception ends it. It is made in a thread of its own; while that hangs, the source is down and everything else goes on.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from exporter.errand import Errand
from exporter.errors import SourceError

Answer = TypeVar("Answer")


class Patience(Generic[Answer]):
    """Calls `read` in a thread and waits for it at most `seconds`; one that hangs is not made a second time."""

    def __init__(self, source: str, read: Callable[[float], Answer], seconds: float) -> None:
        self._source = source
        self._read = read
        self._seconds = seconds
        self._late: Errand[Answer] | None = None

    @property
    def hanging(self) -> bool:
        """Whether a call has not come back."""
        return self._late is not None and not self._late.done(0.0)

    def read(self, now: float) -> Answer:
        """What `read(now)` returns or raises; `SourceError` with reason `timeout` while a call does not come back."""
        if self.hanging:
            raise self._timeout()
        self._late = None  # what a late call brings is of another time
        errand = Errand(lambda: self._read(now))
        if not errand.done(self._seconds) and not errand.abandon():
            self._late = errand
            raise self._timeout()
        return errand.answer()

    def close(self) -> None:
        """Nothing is to be given back: a thread that hangs ends with the process."""

    def _timeout(self) -> SourceError:
        late = f"{self._source} has not answered for {self._seconds:g} s or more"
        return SourceError(self._source, "timeout", f"{late}; it may hang in the driver or the kernel")
