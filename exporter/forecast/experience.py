"""What this engine's own forecasts have taught: a shift of their log odds.

The fitted logistic speaks for all loads together; one engine may run into exhaustion more often than it says,
or less. Every forecast whose horizon has passed moves a shift θ towards what happened, by Bayes' rule for a
logistic with a Gaussian prior around 0 (extended Kalman filter). Forecasts of neighbouring seconds share their
outcome, so that one horizon of them counts as one observation; old experience fades within an hour.
"""

from collections import deque

from exporter.forecast.recalibration import probability

PRIOR_VARIANCE = 0.25
"""Standard deviation 0.5 of log odds between engines: about what leaving each recording out shows."""
FADING_SECONDS = 3600.0


class Experience:
    """The shift of one engine's forecast at one horizon."""

    def __init__(self, horizon: float) -> None:
        """`horizon` in seconds, after which a forecast has come true or not."""
        self._horizon = horizon
        self._pending: deque[tuple[float, float, float]] = deque()
        self._preemptions: deque[float] = deque()
        self._information = 1.0 / PRIOR_VARIANCE
        self._last: float | None = None
        self.shift = 0.0

    def observe(self, time: float, log_odds: float | None, preempted: bool) -> None:
        """Advance to `time`: what is forecast now (before the shift), and whether requests were preempted since."""
        if preempted:
            self._preemptions.append(time)
        while self._pending and time - self._pending[0][0] >= self._horizon:
            self._learn(*self._pending.popleft())
        if not self._pending:  # nothing is left that these could make true
            self._preemptions.clear()
        if log_odds is not None:
            seconds = 0.0 if self._last is None else min(time - self._last, self._horizon)
            self._pending.append((time, seconds, log_odds))
        self._last = time

    def forget_pending(self) -> None:
        """The series broke: what is pending can no longer be judged."""
        self._pending.clear()
        self._preemptions.clear()
        self._last = None

    def _learn(self, made: float, seconds: float, log_odds: float) -> None:
        while self._preemptions and self._preemptions[0] <= made:
            self._preemptions.popleft()
        came_true = bool(self._preemptions) and self._preemptions[0] <= made + self._horizon
        kept = 1.0 - seconds / FADING_SECONDS
        prior = 1.0 / PRIOR_VARIANCE
        self._information = prior + (self._information - prior) * kept
        self.shift *= kept
        said = probability(log_odds + self.shift)
        weight = seconds / self._horizon
        self._information += weight * said * (1.0 - said)
        self.shift += weight * (came_true - said) / self._information
