"""Arrivals of requests: how many came, how unevenly, and continuations into the future."""

from collections import deque

import numpy as np

from exporter.forecast.lengths import Floats
from exporter.reading import EngineReading


def arrived_in_total(reading: EngineReading) -> float | None:
    """Requests that ever arrived, up to a constant: finished, running and waiting ones."""
    if reading.finished is None or reading.running is None:
        return None
    return reading.finished + reading.running + (reading.waiting or 0.0)


class Arrivals:
    """Counts per interval over the last `span` seconds."""

    def __init__(self, span: float = 600.0) -> None:
        """`span` in seconds is how far back uneven arrivals are remembered."""
        self._span = span
        self._counts: deque[tuple[float, float, float]] = deque()

    def observe(self, time: float, seconds: float, count: float) -> None:
        """`count` requests came in the `seconds` before `time`."""
        self._counts.append((time, seconds, max(0.0, count)))
        while self._counts[0][0] < time - self._span:
            self._counts.popleft()

    def rate(self, seconds: float) -> float | None:
        """Arrivals per second over the last `seconds`."""
        if not self._counts:
            return None
        since = self._counts[-1][0] - seconds
        recent = [(s, c) for t, s, c in self._counts if t > since]
        span = sum(s for s, _ in recent)
        return sum(c for _, c in recent) / span if span > 0 else None

    def continuations(self, random: np.random.Generator, rollouts: int, horizon: float) -> Floats:
        """(rollouts, K) arrival times in seconds from now, rising along each row; +inf fills short rows."""
        if not self._counts:
            return np.full((rollouts, 1), np.inf)
        fast, slow = self.rate(15.0) or 0.0, self.rate(120.0) or 0.0
        centre = 0.5 * (fast + slow)
        spread = 0.35 + abs(fast - slow) / (fast + slow + 0.05)
        rate = centre * np.exp(spread * random.standard_normal(rollouts) - spread * spread / 2)
        counts = random.poisson(rate * horizon)
        width = max(1, int(counts.max()))
        times = np.sort(random.random((rollouts, width)) * horizon, axis=1)
        scaled = np.where(np.arange(width) < counts[:, None], random.random((rollouts, width)) * horizon, np.inf)
        del times
        scaled.sort(axis=1)
        return scaled
