"""The last readings of one engine, and rates that survive resets.

A counter that falls is a restart: it gives no rate, and what was counted before it is forgotten.
Counters that fall again and again within a minute belong to several processes answering in turn
(an unaggregated endpoint): no rate is true there.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

from exporter.reading import EngineReading

RESETS_OF_A_SAWTOOTH = 2
"""A real engine takes tens of seconds to load; two falls within `RESET_MEMORY` are two processes."""
RESET_MEMORY = 60.0
MEAN_SECONDS = 300.0

_COUNTERS = ("finished", "prompt_tokens", "generation_tokens", "preemptions", "prefix_queries", "prefix_hits")


def rise(now: float | None, before: float | None) -> float | None:
    """How much a counter rose; `None` when either side is absent or it fell."""
    if now is None or before is None or now < before:
        return None
    return now - before


def reset_between(before: EngineReading, now: EngineReading) -> bool:
    """Whether any counter fell between two readings."""
    for name in _COUNTERS:
        a, b = getattr(before, name), getattr(now, name)
        if a is not None and b is not None and b < a:
            return True
    pairs = ((before.generation_lengths, now.generation_lengths), (before.iteration_tokens, now.iteration_tokens))
    return any(a is not None and b is not None and b.count < a.count for a, b in pairs)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What one reading added: whether the series broke there, and the seconds since the one before."""

    first: bool
    reset: bool
    gap: bool
    seconds: float


class Window:
    """Readings of the last `span` seconds, at most one per reading time."""

    def __init__(self, span: float = 400.0, gap: float = 90.0) -> None:
        """`span` and `gap` in seconds: what is kept, and the silence that breaks the series."""
        self._span = span
        self._gap = gap
        self._readings: list[EngineReading] = []
        self._times: list[float] = []
        """Of the readings, never falling: a time that does is a reset."""
        self._resets: deque[float] = deque()
        self._usage: deque[tuple[float, float]] = deque()
        self._usage_sum = 0.0

    def add(self, reading: EngineReading) -> Arrival:
        """Take one reading; a reset or a gap empties the window before it."""
        arrival = self._take(reading)
        if arrival.reset or arrival.gap:
            self._usage.clear()
            self._usage_sum = 0.0
        if reading.kv_usage is not None:
            self._usage.append((reading.time, reading.kv_usage))
            self._usage_sum += reading.kv_usage
        while self._usage and self._usage[0][0] < reading.time - MEAN_SECONDS:
            self._usage_sum -= self._usage.popleft()[1]
        return arrival

    def _take(self, reading: EngineReading) -> Arrival:
        before = self.last
        if before is None:
            self._keep(reading)
            return Arrival(first=True, reset=False, gap=False, seconds=0.0)
        seconds = reading.time - before.time
        reset = reset_between(before, reading) or seconds < 0
        gap = seconds > self._gap
        if reset:
            self._resets.append(reading.time)
        if reset or gap:
            self._readings.clear()
            self._times.clear()
        self._keep(reading)
        while self._resets and self._resets[0] < reading.time - RESET_MEMORY:
            self._resets.popleft()
        return Arrival(first=False, reset=reset, gap=gap, seconds=max(0.0, seconds))

    def _keep(self, reading: EngineReading) -> None:
        self._readings.append(reading)
        self._times.append(reading.time)
        old = bisect_left(self._times, reading.time - self._span)
        del self._readings[:old], self._times[:old]

    @property
    def last(self) -> EngineReading | None:
        """The newest reading."""
        return self._readings[-1] if self._readings else None

    @property
    def sawtooth(self) -> bool:
        """Whether counters flip between the levels of several processes."""
        return len(self._resets) >= RESETS_OF_A_SAWTOOTH

    @property
    def seconds(self) -> float:
        """How long the unbroken series is."""
        return self._readings[-1].time - self._readings[0].time if self._readings else 0.0

    def since(self, seconds: float) -> list[EngineReading]:
        """The readings of the last `seconds`, oldest first."""
        if not self._times:
            return []
        return self._readings[bisect_left(self._times, self._times[-1] - seconds) :]

    def rise(self, counter: str, seconds: float) -> tuple[float, float] | None:
        """(rise, seconds it took) of a counter over about the last `seconds`; `None` before there are two readings."""
        readings = [r for r in self.since(seconds) if getattr(r, counter) is not None]
        if len(readings) < 2:
            return None
        span = readings[-1].time - readings[0].time
        return (getattr(readings[-1], counter) - getattr(readings[0], counter), span) if span > 0 else None

    def rate(self, counter: str, seconds: float) -> float | None:
        """A counter's rise per second over about the last `seconds`."""
        found = self.rise(counter, seconds)
        return None if found is None else found[0] / found[1]

    def peak_usage(self, seconds: float) -> float | None:
        """The highest `kv_usage` of the last `seconds`."""
        return max((r.kv_usage for r in self.since(seconds) if r.kv_usage is not None), default=None)

    @property
    def mean_usage(self) -> float:
        """Mean `kv_usage` of the last five minutes, each reading alike; 0 before there is one."""
        return self._usage_sum / len(self._usage) if self._usage else 0.0
