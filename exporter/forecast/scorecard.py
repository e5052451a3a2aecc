"""Whether the last predictions came true.

Alarms are counted against onsets (the first preemption after a quiet minute); probabilities are kept until
their horizon has passed and then compared with what happened, in ten bins, hour by hour of the last day.
What the page tells of preemptions is the truth here: it may come a few seconds late.
"""

from collections import deque
from collections.abc import Mapping

import numpy as np

OUTCOMES = ("hit", "miss", "false_alarm", "correct_quiet")
BINS = 10
HOURS = 24
ENOUGH_RESOLVED = 600
"""Resolved forecasts (seconds) below which nothing is said of calibration."""
POOR = 0.15
"""A mean distance between probability and frequency above this is called poor."""


class Scorecard:
    """Keeps the score of one engine's forecast."""

    def __init__(self, horizon: float, counts: Mapping[str, int] | None = None) -> None:
        """`horizon` in seconds is the one the alarm and the probability speak of; `counts` is where to go on from."""
        self._horizon = horizon
        self.counts = {outcome: (counts or {}).get(outcome, 0) for outcome in OUTCOMES}
        self._pending: deque[tuple[float, float]] = deque()
        self._preemptions: deque[float] = deque()
        self._last_preemption = float("-inf")
        self._last_alarm = float("-inf")
        self._episode_hit = True
        self._alarm = False
        self._quiet_since: float | None = None
        self._table = np.zeros((HOURS, BINS, 3))
        self._hour: int | None = None

    def observe(self, time: float, probability: float | None, predicted: bool, preempted: bool) -> None:
        """Advance to `time`: whether requests were preempted since the last call, and what is forecast now."""
        if preempted:
            self._onset(time)
        self._resolve(time)
        if predicted:
            if not self._alarm and time - self._last_alarm > self._horizon:
                self._episode_hit = time - self._last_preemption <= self._horizon
            self._last_alarm = time
        elif not self._episode_hit and time - self._last_alarm > self._horizon:
            self.counts["false_alarm"] += 1
            self._episode_hit = True
        self._alarm = predicted
        self._count_quiet(time, predicted or preempted)
        if probability is not None:
            self._pending.append((time, probability))

    def forget(self) -> None:
        """The series broke: what is pending can no longer be judged."""
        self._pending.clear()
        self._preemptions.clear()
        self._episode_hit, self._alarm, self._quiet_since = True, False, None
        self._last_alarm = self._last_preemption = float("-inf")

    def _onset(self, time: float) -> None:
        if time - self._last_preemption > self._horizon:
            self.counts["hit" if time - self._last_alarm <= self._horizon else "miss"] += 1
        self._episode_hit = True
        self._last_preemption = time
        self._preemptions.append(time)

    def _count_quiet(self, time: float, disturbed: bool) -> None:
        if disturbed or self._quiet_since is None:
            self._quiet_since = time
        elif time - self._quiet_since >= self._horizon:
            self.counts["correct_quiet"] += 1
            self._quiet_since = time

    def _resolve(self, time: float) -> None:
        while self._pending and time - self._pending[0][0] >= self._horizon:
            made, probability = self._pending.popleft()
            while self._preemptions and self._preemptions[0] <= made:
                self._preemptions.popleft()
            came_true = bool(self._preemptions) and self._preemptions[0] <= made + self._horizon
            hour = int(made // 3600)
            if self._hour is not None and hour != self._hour:
                for passed in range(self._hour + 1, min(hour, self._hour + HOURS) + 1):
                    self._table[passed % HOURS] = 0.0
            self._hour = hour
            self._table[hour % HOURS, min(BINS - 1, int(probability * BINS))] += (1.0, probability, float(came_true))
        if not self._pending:  # nothing is left that these could make true
            self._preemptions.clear()

    def reliability(self) -> list[tuple[float, float, int]]:
        """(mean probability, frequency, forecasts) of each bin with forecasts in it, over the last day."""
        counts, said, came = self._table.sum(axis=0).T
        return [(float(p / n), float(y / n), int(n)) for n, p, y in zip(counts, said, came, strict=True) if n]

    @property
    def calibration_error(self) -> float | None:
        """Mean distance between probability and frequency over the last day; `None` until enough has been resolved."""
        bins = self.reliability()
        total = sum(n for _, _, n in bins)
        if total < ENOUGH_RESOLVED:
            return None
        return sum(n * abs(p - y) for p, y, n in bins) / total

    @property
    def poor(self) -> bool:
        """Whether the forecast has been poor lately."""
        error = self.calibration_error
        return error is not None and error > POOR
