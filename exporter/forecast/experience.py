"""What this engine's own forecasts have taught: a shift of their log odds that depends on the evidence.

The fitted logistic speaks for all loads together; on one engine a full pool, a queue or a recent preemption may mean
more than elsewhere, or less. Every forecast whose horizon has passed moves the coefficients θ of a second logistic,
added to the first, towards what happened: by Bayes' rule with a Gaussian prior around 0 (extended Kalman filter).
Forecasts of neighbouring seconds share their outcome, so that one horizon of them counts as one observation; old
experience fades within hours.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exporter.forecast.lengths import Floats
from exporter.forecast.recalibration import probability

CENTRE = np.array((0.0, -1.0, -2.0, 0.6, 0.3, 0.5, 0.0))
"""Where the terms of the recalibration usually lie: there θ adds its first component alone."""
DEVIATION = np.array((0.5, 0.17, 0.17, 0.7, 0.5, 1.4, 0.5))
"""Standard deviation of θ between engines, for each term: half a unit of log odds over the term's usual range."""
FADING_SECONDS = 14400.0


@dataclass(frozen=True, slots=True)
class _Made:
    """A forecast that waits for its outcome."""

    time: float
    seconds: float
    log_odds: float
    terms: Floats


class Experience:
    """The shift of one engine's forecast at one horizon."""

    def __init__(self, horizon: float) -> None:
        """`horizon` in seconds, after which a forecast has come true or not."""
        self._horizon = horizon
        self._pending: deque[_Made] = deque()
        self._preemptions: deque[float] = deque()
        self._prior = np.diag(1.0 / DEVIATION**2)
        self._information = self._prior.copy()
        self._theta = np.zeros(len(CENTRE))
        self._last: float | None = None
        self.shift = 0.0
        """What to add to the log odds of the present; 0 without a forecast."""

    def observe(self, time: float, log_odds: float | None, terms: Sequence[float], preempted: bool) -> None:
        """Advance to `time`.

        `log_odds` are those forecast now, before the shift, and `terms` what they rest on; `preempted` tells whether
        requests were preempted since the last call.
        """
        if preempted:
            self._preemptions.append(time)
        while self._pending and time - self._pending[0].time >= self._horizon:
            self._learn(self._pending.popleft())
        self.shift = 0.0
        if log_odds is not None:
            seconds = 0.0 if self._last is None else min(time - self._last, self._horizon)
            made = _Made(time, seconds, log_odds, np.asarray(terms) - CENTRE)
            self._pending.append(made)
            self.shift = float(made.terms @ self._theta)
        self._last = time

    def forget_pending(self) -> None:
        """The series broke: what is pending can no longer be judged."""
        self._pending.clear()
        self._preemptions.clear()
        self._last = None

    def _learn(self, made: _Made) -> None:
        while self._preemptions and self._preemptions[0] <= made.time:
            self._preemptions.popleft()
        came_true = bool(self._preemptions) and self._preemptions[0] <= made.time + self._horizon
        kept = 1.0 - made.seconds / FADING_SECONDS
        self._information = self._prior + (self._information - self._prior) * kept
        self._theta = self._theta * kept
        said = probability(made.log_odds + float(made.terms @ self._theta))
        weight = made.seconds / self._horizon
        self._information += weight * said * (1.0 - said) * np.outer(made.terms, made.terms)
        self._theta += np.linalg.solve(self._information, made.terms * (weight * (came_true - said)))
