"""The alarm: a threshold with hysteresis, and the states with their rules."""

from dataclasses import dataclass

from exporter.forecast.assessment import State


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """On when the probability has stayed at or above `on` for `hold` seconds; off below `off` for `release` seconds."""

    on: float = 0.6
    off: float = 0.3
    hold: float = 2.0
    release: float = 20.0
    watch: float = 0.3


class Alarm:
    """The alarm's memory."""

    def __init__(self, rule: AlarmRule | None = None) -> None:
        """Start off."""
        self.rule = rule or AlarmRule()
        self.on = False
        self._since: float | None = None

    def observe(self, time: float, probability: float | None) -> bool:
        """Advance to `time`; without a probability the alarm goes off at once."""
        if probability is None:
            self.on, self._since = False, None
            return False
        rule = self.rule
        wanted = probability >= rule.on if not self.on else probability < rule.off
        if not wanted:
            self._since = None
        else:
            self._since = time if self._since is None else self._since
            if time - self._since >= (rule.release if self.on else rule.hold):
                self.on, self._since = not self.on, None
        return self.on


@dataclass(frozen=True, slots=True)
class Verdict:
    """A state and the rule behind it."""

    state: State
    reason: str


def state_of(probability: float | None, predicted: bool, preempting: bool, watch: float) -> Verdict:
    """The state of an engine that is awake, in sight and making progress."""
    if probability is None:
        return Verdict("unknown", "not enough readings yet for a forecast")
    if preempting:
        return Verdict("exhausted", "the engine preempted requests for want of KV blocks within the last seconds")
    if predicted:
        return Verdict("predicted", f"KV exhaustion is predicted with probability {probability:.2f}")
    if probability >= watch:
        return Verdict("watch", f"KV exhaustion is possible, probability {probability:.2f}, not yet an alarm")
    return Verdict("ok", "no KV exhaustion in sight")
