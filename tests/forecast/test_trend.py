"""The slope that steps, spikes and warm-up do not fool."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.forecast.exhaustion import Latch, chance, either, seconds_until
from exporter.forecast.trend import Trend, TrendWindow, fit

MIB = 2.0**20


def window(series: Callable[[float], float], seconds: int) -> TrendWindow:
    """A window that has seen a series once a second."""
    filled = TrendWindow()
    for second in range(seconds):
        filled.add(float(second), series(float(second)))
    return filled


@given(st.floats(-1e6, 1e6), st.floats(0, 1e11), st.integers(4, 60))
def test_a_straight_line_is_found_exactly(slope: float, start: float, points: int) -> None:
    """Slope, recent slope and rank correlation of a line are the line's; its noise is nothing beside it."""
    times = np.arange(points, dtype=np.float64) * 15
    trend = fit(times, start + slope * times)
    assert trend is not None
    scale = max(1.0, abs(start), abs(slope) * times[-1])
    assert trend.slope == pytest.approx(slope, abs=1e-9 * scale)
    assert trend.recent_slope == pytest.approx(slope, abs=1e-9 * scale)
    assert trend.noise <= 1e-9 * scale


@settings(deadline=None)
@given(st.integers(0, 240), st.floats(1, 1e10), st.booleans())
def test_one_step_anywhere_is_no_climb(at: int, height: float, up: bool) -> None:
    """Whatever its size and place, at least half of all pairs stay on one side of a step."""
    times = np.arange(240, dtype=np.float64) * 15
    trend = fit(times, np.where(np.arange(240) >= at, height if up else -height, 0.0))
    assert trend is not None
    assert abs(trend.slope) * times[-1] <= height * 1e-9 or not trend.climbing


@settings(deadline=None)
@given(st.lists(st.integers(0, 239), min_size=1, max_size=30, unique=True), st.floats(1e3, 1e9))
def test_spikes_are_outvoted(at: list[int], height: float) -> None:
    """An eighth of the points may be anything without making a flat series climb."""
    values = np.zeros(240)
    values[at] = height
    trend = fit(np.arange(240, dtype=np.float64) * 15, values)
    assert trend is not None
    assert trend.slope == 0
    assert not trend.climbing


def test_few_points_are_no_trend() -> None:
    """Three points are not fitted."""
    assert fit(np.arange(3.0), np.arange(3.0)) is None


def test_a_steady_climb_is_seen_after_the_settling_time() -> None:
    """Growth is not believed before ten minutes were watched, and is after."""
    assert window(lambda t: t, 600).climb() is None
    climb = window(lambda t: t, 660).climb()
    assert climb is not None
    assert climb.slope == pytest.approx(1.0)


def test_a_climb_hidden_in_noise_is_found_over_the_hour() -> None:
    """1 % an hour of 80 GiB under noise of 50 MiB: the slope is right within a tenth."""
    rng = np.random.default_rng(1)
    slope = 0.8 * 2**30 / 3600
    climb = window(lambda t: slope * t + rng.normal() * 50 * MIB, 3700).climb()
    assert climb is not None
    assert climb.slope == pytest.approx(slope, rel=0.1)
    assert 5 * MIB < climb.noise < 60 * MIB


def test_noise_alone_is_no_climb() -> None:
    """Twenty hours of stationary noise never look like growth."""
    rng = np.random.default_rng(2)
    filled = TrendWindow()
    for second in range(0, 72_000, 5):
        filled.add(float(second), rng.normal() * 100 * MIB)
        assert second % 300 or filled.climb() is None


def test_a_staircase_that_goes_on_is_a_climb() -> None:
    """An allocator takes memory in segments: 100 MiB every five minutes is 1,200 MiB an hour."""
    climb = window(lambda t: t // 300 * 100 * MIB, 3700).climb()
    assert climb is not None
    assert climb.slope * 3600 == pytest.approx(1200 * MIB, rel=0.1)


@pytest.mark.parametrize("steps", [2, 4, 6])
def test_a_staircase_that_stopped_is_none(steps: int) -> None:
    """Lazy allocations in the minutes after the first requests are over when they are over."""
    filled = TrendWindow()
    climbing = []
    for second in range(3600):
        filled.add(float(second), min(max(second - 1000, 0) // 60, steps) * 400 * MIB)
        climbing.append(filled.climb() is not None)
    assert not any(climbing[1000 + 60 * steps + 300 :])


def test_a_climb_after_hours_of_calm_is_seen_within_the_settling_time() -> None:
    """The short window sees what the hour still outvotes."""
    assert window(lambda t: max(0.0, t - 7200) * MIB, 7200 + 500).climb() is not None


def test_growth_only_under_traffic_is_still_growth() -> None:
    """Four minutes of traffic that take memory, four of rest that give none back."""

    def held(second: float) -> float:
        pairs, rest = divmod(second, 480)
        return (pairs * 240 + max(0.0, rest - 240)) * MIB

    climb = window(held, 3700).climb()
    assert climb is not None
    assert climb.slope == pytest.approx(0.5 * MIB, rel=0.1)


def test_a_bucket_keeps_its_highest_value() -> None:
    """A peak of one second is not lost between two points."""
    filled = TrendWindow(span_seconds=600, bucket_seconds=15)
    for second in range(700):
        filled.add(float(second), 100.0 if second % 15 == 7 else 0.0)
    trend = filled.trend(300)
    assert trend is not None
    assert (trend.slope, trend.noise) == (0, 0)
    assert filled.span_seconds == 39 * 15


def test_a_cleared_window_knows_nothing() -> None:
    """After a restart the past is no evidence."""
    filled = window(lambda t: t, 1000)
    filled.clear()
    assert filled.climb() is None
    assert filled.span_seconds == 0


LINE = Trend(slope=1.0, slope_error=0.0, recent_slope=1.0, tau=1.0, noise=0.0, span_seconds=3600.0)


def test_no_room_is_certain_and_no_climb_is_safe() -> None:
    """The two ends of the scale do not depend on the rest."""
    assert chance(0, None, 60) == chance(-5, LINE, 60) == 1
    assert chance(1, None, 3600) == 0


def test_what_has_lasted_an_hour_may_last_another() -> None:
    """A climb of an hour that needs a further hour has an even chance to arrive; one of ten minutes a seventh."""
    assert chance(3600, LINE, 3600) == pytest.approx(0.5)
    short = Trend(1.0, 0.0, 1.0, 1.0, 0.0, span_seconds=600.0)
    assert chance(3600, short, 3600) == pytest.approx(1 / 7)
    assert chance(3601, LINE, 3600) == 0


@given(st.floats(1, 1e10), st.floats(0, 1e6), st.floats(0, 1e3), st.floats(0, 1e9), st.floats(1, 7200))
def test_a_chance_is_a_chance_and_grows_with_the_horizon(
    room: float, slope: float, error: float, noise: float, horizon: float
) -> None:
    """Within 0..1; a climb without an error of its slope is not less likely to arrive later."""
    trend = Trend(slope, error, slope, 1.0, noise, 3600.0)
    assert 0 <= chance(room, trend, horizon) <= 1
    certain = Trend(slope, 0.0, slope, 1.0, 0.0, 3600.0)
    assert chance(room, certain, horizon) <= chance(room, certain, 2 * horizon) + 1e-12


def test_seconds_until_the_room_is_gone() -> None:
    """Room over slope; 0 when it is gone, absent when nothing climbs."""
    assert seconds_until(100, LINE) == 100
    assert seconds_until(0, None) == 0
    assert seconds_until(100, None) is None


def test_either_of_two_events() -> None:
    """Independent chances combine."""
    assert either(0.5, 0.5) == 0.75
    assert either() == 0


def test_the_alarm_neither_flaps_nor_sticks() -> None:
    """On at 0.5, kept while 0.25 or more was seen within the hold time, off after it."""
    latch = Latch(0.5, 0.25, 60)
    states = [latch.update(t, p) for t, p in ((0, 0.4), (1, 0.5), (2, 0.3), (3, 0.1), (50, 0.2), (61, 0.1), (62, 0.1))]
    assert states == [False, True, True, True, True, True, False]
    assert latch.update(63, 0.49) is False
