"""One call in a thread of its own, which neither a tick nor the end of the process need wait for."""

import _thread
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")

BEGIN_SECONDS = 2.0
"""A thread that has not begun by then most likely never will: without memory it ends before it can say so."""


class Errand(Generic[Answer]):
    """Begins `call` at once; `RuntimeError` where no thread can be had.

    Not `threading.Thread`: its `start` waits until the thread has begun, which without memory is for ever.
    """

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._ahead = [call]
        self._answers: list[Answer] = []
        self._error: Exception = RuntimeError("the thread ended without an answer")
        self._under_way = _thread.allocate_lock()
        self._under_way.acquire()
        _thread.start_new_thread(self._run, ())

    def done(self, seconds: float) -> bool:
        """Wait for at most `seconds`; whether it has come back."""
        back = self._under_way.acquire(timeout=max(0.0, seconds))
        if back:
            self._under_way.release()
        return back

    def abandon(self) -> bool:
        """Give up a call that has not begun, and now never will; false where it is under way or was given up."""
        try:
            self._ahead.pop()
        except IndexError:
            return False
        self._under_way.release()
        return True

    def answer(self) -> Answer:
        """What the call returned, once it has come back; raises what it raised, `RuntimeError` if it never began."""
        while not self.done(BEGIN_SECONDS):
            self.abandon()
        if not self._answers:
            # A fresh traceback each time: one that is raised again and again would grow.
            raise self._error.with_traceback(None)
        return self._answers[0]

    def _run(self) -> None:
        try:
            call = self._ahead.pop()
        except IndexError:
            return
        try:
            self._answers.append(call())
        except Exception as error:
            self._error = error
        finally:
            self._under_way.release()
