"""The alarm: a threshold with hysteresis, and the states with their rules."""

from dataclasses import dataclass

from exporter.forecast.assessment import State

NEAR_SECONDS = 15.0
"""The horizon within which a lower probability is enough: there is no time left to wait for certainty."""

SPARSE_SECONDS = 5.0
"""Readings this far apart are not waited for: one of them is enough to ring."""


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """When the alarm goes on and off.

    On once the probability has been at or above `on`, or that of the next 15 s at or above `near_on`, for `hold`
    seconds. Off once the probability has been below `off` for `release` seconds and no request was preempted for
    `calm` seconds: while the pool is being exhausted the alarm stands. `watch` is the probability from which an
    engine is watched.
    """

    on: float = 0.50
    near_on: float = 0.23
    off: float = 0.27
    hold: float = 1.0
    release: float = 4.0
    calm: float = 55.0
    watch: float = 0.25


class Alarm:
    """The alarm's memory."""

    def __init__(self, rule: AlarmRule | None = None) -> None:
        """Start off."""
        self.rule = rule or AlarmRule()
        self.on = False
        self._since: float | None = None
        self._last: float | None = None

    def observe(
        self, time: float, probability: float | None, near: float | None = None, since_preemption: float = float("inf")
    ) -> bool:
        """Advance to `time` (seconds); without a probability the alarm goes off at once.

        `near` is the probability of the next `NEAR_SECONDS`, `since_preemption` in seconds.
        """
        sparse = self._last is not None and time - self._last >= SPARSE_SECONDS
        self._last = time
        if probability is None:
            self.on, self._since = False, None
            return False
        rule = self.rule
        if self.on:
            turns = probability < rule.off and since_preemption >= rule.calm
        else:
            turns = probability >= rule.on or (near or 0.0) >= rule.near_on
        if not turns:
            self._since = None
            return self.on
        self._since = time if self._since is None else self._since
        if time - self._since >= (rule.release if self.on else rule.hold) or (sparse and not self.on):
            self.on, self._since = not self.on, None
        return self.on


@dataclass(frozen=True, slots=True)
class Verdict:
    """A state and the rule behind it."""

    state: State
    reason: str


def state_of(probability: float | None, predicted: bool, preempting: bool, watch: float) -> Verdict:
    """The state of an engine that is awake, in sight and making progress."""
    if preempting:
        return Verdict("exhausted", "requests were preempted for want of KV blocks within the last seconds")
    if probability is None:
        return Verdict("unknown", "not enough readings yet for a forecast")
    if predicted:
        return Verdict("predicted", f"the KV pool is predicted to run out, probability {probability:.2f}")
    if probability >= watch:
        return Verdict("watch", f"the KV pool may run out, probability {probability:.2f}; not yet an alarm")
    return Verdict("ok", "no KV exhaustion in sight")
