"""What an engine's own outcomes teach its forecast."""

from exporter.forecast.experience import CENTRE, Experience
from exporter.forecast.recalibration import probability

USUAL = (1.0, *CENTRE[1:])


def test_experience_moves_towards_what_happens() -> None:
    """Forecasts that come true less often than said are shifted down."""
    experience = Experience(60.0)
    for second in range(3600):
        experience.observe(float(second), 0.0, USUAL, preempted=False)
    assert experience.shift < -0.5
    assert 0.0 < probability(experience.shift) < 0.4


def test_experience_stays_where_forecasts_come_true() -> None:
    """Half of the forecasts of one half come true: nothing to shift."""
    experience = Experience(60.0)
    for second in range(7200):
        experience.observe(float(second), 0.0, USUAL, preempted=second % 240 < 60 and second % 20 == 0)
    assert abs(experience.shift) < 0.35


def test_experience_tells_moments_apart() -> None:
    """Where a full pool is followed by preemptions and a half-empty one never, each is shifted its own way."""
    experience, full, low = Experience(60.0), list(USUAL), list(USUAL)
    full[3], low[3] = 0.95, 0.25
    for second in range(7200):
        filled = second % 600 >= 300
        experience.observe(float(second), 0.0, full if filled else low, preempted=filled and second % 30 == 0)
    experience.observe(7200.0, 0.0, full, preempted=False)
    above = experience.shift
    experience.observe(7201.0, 0.0, low, preempted=False)
    assert experience.shift < 0.0 < above


def test_without_a_forecast_there_is_nothing_to_shift() -> None:
    """While the forecast abstains the shift is nought, and a break of the series voids what was pending."""
    experience = Experience(60.0)
    for second in range(600):
        experience.observe(float(second), 0.0, USUAL, preempted=False)
    experience.observe(600.0, None, (), preempted=False)
    assert experience.shift == 0.0
    experience.forget_pending()
    experience.observe(900.0, 0.0, USUAL, preempted=True)
    assert experience.shift < 0.0
