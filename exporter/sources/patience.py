"""A read that may hang, kept from hanging the tick.

A call into a driver whose GPU is gone, or a read of a file whose lock another holds, can block in the kernel, and no
exception ends it. It is made in a thread of its
own; while that hangs, the source is down and everything else goes on.
"""

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from exporter.errors import SourceError

Answer = TypeVar("Answer")


class Patience(Generic[Answer]):
    """Calls `read` in one daemon thread and waits for it at most `seconds`."""

    def __init__(self, source: str, read: Callable[[float], Answer], seconds: float) -> None:
        self._source = source
        self._read = read
        self._seconds = seconds
        self._asked: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._waiting = False

    @property
    def hanging(self) -> bool:
        """Whether a call has not come back."""
        return self._waiting and self._answers.empty()

    def read(self, now: float) -> Answer:
        """What `read(now)` returns or raises; `SourceError` with reason `timeout` while a call does not come back."""
        if self._waiting:
            self._take(0.0)  # what a late call brings is of another time
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name=self._source, daemon=True)
            thread.start()  # raises where no thread can be had; then the next read tries again
            self._thread = thread
        self._asked.put(now)
        self._waiting = True
        answer = self._take(self._seconds)
        if isinstance(answer, Exception):
            # A fresh traceback each time: one that is raised again and again would grow.
            raise answer.with_traceback(None)
        return answer

    def close(self) -> None:
        """End the thread; one that hangs ends with the process."""
        if self._thread is not None:
            self._asked.put(None)
            self._thread = None

    def _take(self, seconds: float) -> Answer | Exception:
        try:
            answer = self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait()
        except queue.Empty:
            message = f"{self._source} has not answered for {self._seconds:g} s or more; it may hang in the kernel"
            raise SourceError(self._source, "timeout", message) from None
        self._waiting = False
        return answer

    def _serve(self) -> None:
        while (now := self._asked.get()) is not None:
            try:
                answer: Answer | Exception = self._read(now)
            except Exception as error:
                answer = error
            self._answers.put(answer)
