"""The alarm and the states."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.forecast.alarm import Alarm, AlarmRule, state_of

RULE = AlarmRule(on=0.6, near_on=0.3, off=0.2, hold=2.0, release=5.0, calm=30.0)


def play(alarm: Alarm, probabilities: list[float | None], start: float = 0.0) -> list[bool]:
    return [alarm.observe(start + second, value) for second, value in enumerate(probabilities)]


def test_it_goes_on_once_the_probability_has_held() -> None:
    """A spike shorter than `hold` rings nobody; a probability that stays does."""
    assert play(Alarm(RULE), [0.1, 0.9, 0.1, 0.9, 0.9, 0.9]) == [False, False, False, False, False, True]


def test_what_is_near_needs_less_certainty() -> None:
    """A lower probability is enough when it is that of the next seconds."""
    alarm = Alarm(RULE)
    assert [alarm.observe(float(t), 0.4, near=0.35) for t in range(4)] == [False, False, True, True]
    assert not any(Alarm(RULE).observe(float(t), 0.4, near=0.2) for t in range(10))


def test_sparse_readings_are_not_waited_for() -> None:
    """Where the next reading is many seconds away, one reading rings."""
    alarm = Alarm(RULE)
    assert [alarm.observe(15.0 * k, value) for k, value in enumerate((0.1, 0.9))] == [False, True]


def test_it_goes_off_late_and_does_not_flap() -> None:
    """Between `off` and `on` it stays as it was; below `off` it goes off after `release` seconds."""
    alarm = Alarm(RULE)
    assert play(alarm, [0.9] * 3)[-1]
    assert all(play(alarm, [0.4] * 60, start=3))
    assert play(alarm, [0.1] * 7, start=63) == [True] * 5 + [False] * 2


def test_it_stands_while_the_pool_is_being_exhausted() -> None:
    """A preemption a moment ago keeps it on whatever the probability says."""
    alarm = Alarm(RULE)
    play(alarm, [0.9] * 3)
    assert all(alarm.observe(3.0 + t, 0.0, since_preemption=float(t)) for t in range(30))
    assert not [alarm.observe(33.0 + t, 0.0, since_preemption=30.0 + t) for t in range(10)][-1]


def test_without_a_probability_it_goes_off_at_once() -> None:
    """What is not known rings nobody."""
    alarm = Alarm(RULE)
    play(alarm, [0.9] * 3)
    assert play(alarm, [None, 0.9], start=3) == [False, False]


@given(st.lists(st.floats(0, 1), max_size=60))
def test_it_never_changes_faster_than_its_hold(probabilities: list[float]) -> None:
    """Whatever the probabilities, an alarm that went on stays on for at least `release` seconds."""
    states = play(Alarm(RULE), list(probabilities))
    edges = [second for second in range(1, len(states)) if states[second] and not states[second - 1]]
    for edge in edges:
        assert all(states[edge : edge + int(RULE.release)])


def test_each_state_has_its_rule() -> None:
    """Preempting is exhausted; an alarm is predicted; below it watch; then ok; nothing known is unknown."""
    assert state_of(0.9, True, True, 0.25).state == "exhausted"
    assert state_of(None, False, True, 0.25).state == "exhausted"
    assert state_of(0.9, True, False, 0.25).state == "predicted"
    assert state_of(0.3, False, False, 0.25).state == "watch"
    assert state_of(0.1, False, False, 0.25).state == "ok"
    assert state_of(None, False, False, 0.25).state == "unknown"
