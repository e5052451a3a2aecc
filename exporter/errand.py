"""One call in a thread of its own, which neither a tick nor the end of the process need wait for."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Errand(Generic[Answer]):
    """Begins `call` at once; `RuntimeError` where no thread can be had."""

    def __init__(self, call: Callable[[], Answer], name: str) -> None:
        self._call = call
        self._answers: list[Answer] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def done(self, seconds: float) -> bool:
        """Wait for at most `seconds`; whether it has come back."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def answer(self) -> Answer:
        """What the call returned, once it has come back; raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._answers[0]

    def _run(self) -> None:
        try:
            self._answers.append(self._call())
        except Exception as error:
            self._error = error
