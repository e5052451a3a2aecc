"""When the next tick is due, and a clock that only goes forward."""

import threading
from collections.abc import Callable


class Pace:
    """A grid of `interval` seconds that starts at `now`. A tick that is late is not made up for."""

    def __init__(self, interval: float, now: float) -> None:
        self._interval = interval
        self.due = now
        """When the tick that is under way was due."""

    def seconds(self, now: float) -> float:
        """How long to wait, once a tick has ended at `now`, until the next one."""
        self.due += self._interval * max(1, -(-(now - self.due) // self._interval))
        return self.due - now


class SteadyClock:
    """Another clock's seconds, without its jumps back: they take no time.

    Linux' monotonic clock never goes back; that of a virtual machine which is restored or moved can, and whatever
    waits for a moment that lies an hour ahead would wait for an hour.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = clock()
        self._lost = 0.0

    def __call__(self) -> float:
        """Seconds, never fewer than the last time."""
        with self._lock:
            now = self._clock()
            self._lost += max(0.0, self._last - now)
            self._last = now
            return now + self._lost
