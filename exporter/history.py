"""What the last quarter of an hour looked like, engine by engine: one compact point a second."""

import math
import operator
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.reading import EngineReading
from exporter.snapshot import EngineStatus, Snapshot

EngineKey = tuple[str, str, str]
"""Server, model name, engine."""
Values = NDArray[np.float32]

SECONDS = 900
"""How far back it goes; also the number of points, since no two are closer than a second."""
MAX_ENGINES = 128
"""Engines that are remembered: 14 kB each. An engine above that number has no history."""

_USED, _PREEMPTIONS, _RUNNING, _WAITING = range(4)


@dataclass(frozen=True, slots=True)
class Trace:
    """One engine's past, oldest first; all tuples have one length.

    `used_ratio`, `running` and `waiting` are the highest values of what a point stands for, `None` where the engine
    told none; `preemptions` are those that happened since the point before.
    """

    seconds_ago: tuple[float, ...] = ()
    used_ratio: tuple[float | None, ...] = ()
    preemptions: tuple[int, ...] = ()
    running: tuple[float | None, ...] = ()
    waiting: tuple[float | None, ...] = ()


class History:
    """Fed one snapshot a tick by one thread, read by any other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: NDArray[np.float64] = np.full(SECONDS, -np.inf)
        self._values: dict[EngineKey, Values] = {}
        self._counters: dict[EngineKey, float | None] = {}
        self._slot = -1

    def add(self, snapshot: Snapshot) -> None:
        """Remember what `snapshot` says of every engine; ticks within the same second share a point."""
        with self._lock:
            if self._slot < 0 or snapshot.time - self._times[self._slot % SECONDS] >= 0.95:
                self._open_slot(snapshot.time)
            for status in snapshot.engines:
                self._take(status)

    def trace(self, key: EngineKey, now: float, seconds: float = SECONDS, points: int = 300) -> Trace:
        """The last `seconds` before `now`, a time of the snapshots' clock, in at most about `points` points.

        Neighbours that share a point always share it, so that a drawing moves along and does not shimmer.
        """
        with self._lock:
            values = self._values.get(key)
            if values is None or self._slot < 0:
                return Trace()
            slots = np.arange(max(0, self._slot - SECONDS + 1), self._slot + 1)
            times = self._times[slots % SECONDS]
            kept = times >= now - seconds
            slots, times = slots[kept], times[kept]
            window = values[:, slots % SECONDS]
        if not slots.size:
            return Trace()
        width = max(1, -(-slots.size // points))
        starts = np.flatnonzero(np.diff(slots // width, prepend=-1))
        return Trace(
            seconds_ago=tuple(np.round(np.maximum(0.0, now - np.maximum.reduceat(times, starts)), 1).tolist()),
            used_ratio=_known(np.fmax.reduceat(window[_USED], starts), 4),
            preemptions=tuple(int(n) for n in np.add.reduceat(np.nan_to_num(window[_PREEMPTIONS]), starts)),
            running=_known(np.fmax.reduceat(window[_RUNNING], starts), 1),
            waiting=_known(np.fmax.reduceat(window[_WAITING], starts), 1),
        )

    def _open_slot(self, time: float) -> None:
        self._slot += 1
        index = self._slot % SECONDS
        self._times[index] = time
        for key, values in list(self._values.items()):
            values[:, index] = np.nan
            if np.isnan(values).all():
                del self._values[key]
                self._counters.pop(key, None)  # an engine need not have told its preemptions

    def _take(self, status: EngineStatus) -> None:
        reading = status.reading
        key = status.server, reading.model_name, reading.engine
        values = self._values.get(key)
        if values is None:
            if len(self._values) >= MAX_ENGINES or reading.kv_usage is None:
                return
            values = self._values[key] = np.full((4, SECONDS), np.nan, dtype=np.float32)
        index = self._slot % SECONDS
        column = (reading.kv_usage, self._preempted(key, reading), reading.running, reading.waiting)
        for row, value in enumerate(column):
            if value is not None:
                merge: Callable[[float, float], float] = operator.add if row == _PREEMPTIONS else max
                before = float(values[row, index])
                values[row, index] = value if np.isnan(before) else merge(before, value)

    def _preempted(self, key: EngineKey, reading: EngineReading) -> float | None:
        """Preemptions since the last reading that told their number; none over a reset of the counter."""
        before = self._counters.get(key)
        if reading.preemptions is None:
            return None
        self._counters[key] = reading.preemptions
        return max(0.0, reading.preemptions - before) if before is not None else 0.0


def _known(values: Values, digits: int) -> tuple[float | None, ...]:
    rounded = values.astype(np.float64).round(digits)
    told = rounded.tolist()
    return tuple(None if math.isnan(value) else value for value in told) if np.isnan(rounded).any() else tuple(told)
