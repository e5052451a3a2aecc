"""The scorecard counts what came true, and measures calibration over a day."""

import pytest

from exporter.forecast.scorecard import Scorecard


def play(
    card: Scorecard, seconds: range, probability: float, alarm: bool = False, preempted_at: tuple[int, ...] = ()
) -> None:
    for t in seconds:
        card.observe(float(t), probability, alarm, t in preempted_at)


def test_an_onset_after_an_alarm_is_a_hit() -> None:
    """A preemption within the horizon after an alarm counts once as a hit, never as a false alarm."""
    card = Scorecard(60.0)
    play(card, range(100), 0.1)
    play(card, range(100, 130), 0.9, alarm=True)
    play(card, range(130, 400), 0.1, preempted_at=(140, 145))
    assert card.counts["hit"] == 1
    assert card.counts["miss"] == card.counts["false_alarm"] == 0


def test_an_onset_without_an_alarm_is_a_miss() -> None:
    """A first preemption without an alarm in the horizon before it counts as a miss."""
    card = Scorecard(60.0)
    play(card, range(200), 0.1, preempted_at=(150, 151, 190))
    assert card.counts["miss"] == 1


def test_an_alarm_without_a_preemption_is_a_false_alarm() -> None:
    """An alarm whose horizon passes without a preemption counts once, however often it flickered within it."""
    card = Scorecard(60.0)
    play(card, range(10), 0.1)
    play(card, range(10, 20), 0.9, alarm=True)
    play(card, range(20, 30), 0.1)
    play(card, range(30, 40), 0.9, alarm=True)
    play(card, range(40, 200), 0.1)
    assert card.counts["false_alarm"] == 1


def test_quiet_minutes_are_counted() -> None:
    """Each whole horizon without an alarm and without a preemption is one correct quiet."""
    card = Scorecard(60.0)
    play(card, range(301), 0.05)
    assert card.counts["correct_quiet"] == 5


def test_calibration_error_is_the_mean_distance_between_saying_and_happening() -> None:
    """Saying 0.5 where nothing ever happens is 0.5 off, and is called poor."""
    card = Scorecard(60.0)
    play(card, range(500), 0.5)
    assert card.calibration_error is None
    play(card, range(500, 1000), 0.5)
    assert card.calibration_error == pytest.approx(0.5)
    assert card.poor


def test_a_preemption_hidden_behind_a_later_one_still_counts() -> None:
    """A forecast is judged by its own horizon, not by the newest preemption."""
    card = Scorecard(60.0)
    card.observe(0.0, 1.0, False, False)
    card.observe(30.0, 1.0, False, True)
    card.observe(61.0, 1.0, False, True)
    assert card.reliability() == [(1.0, 1.0, 1)]


def test_a_day_later_old_forecasts_are_forgotten() -> None:
    """Only the last 24 hours count."""
    card = Scorecard(60.0)
    play(card, range(700), 0.9)
    for t in range(90_000, 90_700):
        card.observe(float(t), 0.0, False, False)
    assert card.reliability() == [(0.0, 0.0, 640)]


def test_a_broken_series_is_not_judged() -> None:
    """After a gap or a restart nothing pending is resolved."""
    card = Scorecard(60.0)
    play(card, range(50), 1.0, alarm=True)
    card.forget()
    play(card, range(1000, 1100), 0.0)
    assert card.counts["false_alarm"] == 0
    assert card.counts["miss"] == 0
