"""The figures of a backtest mean what their definitions say."""

import pytest

from exporter.backtest.scoring import Counts, Point, count, episodes_of, onsets_of, score


def series(end: int, on: range = range(0), probability: float = 0.9) -> list[Point]:
    return [(float(t), probability if t in on else 0.1, t in on) for t in range(end)]


def test_an_onset_is_a_preemption_after_a_quiet_minute() -> None:
    """Preemptions less than a minute apart are one episode; the first minute of a record has no onset."""
    assert onsets_of([30.0, 100.0, 120.0, 170.0, 240.0]) == [100.0, 240.0]


def test_edges_close_together_are_one_alarm() -> None:
    """An alarm that flickers within ten seconds is one episode."""
    flickering = [*series(20, range(5, 8)), *[(t + 12.0, 0.9, True) for t in range(8, 10)]]
    assert episodes_of(flickering) == [(5.0, 7.0), (20.0, 21.0)]
    assert episodes_of([*series(40, range(5, 8)), (45.0, 0.9, True)]) == [(5.0, 7.0), (45.0, 45.0)]


def test_an_early_alarm_is_recalled_early_and_precise() -> None:
    """An alarm from 40 s before the onset counts for recall, for warned15 and for precision."""
    told = score(count(series(600, range(260, 310)), [300.0]))
    assert (told.onsets, told.recall, told.warned15, told.precision) == (1, 1.0, 1.0, 1.0)
    assert told.lead_p50 == pytest.approx(38.0)
    assert told.calm == 0.0


def test_a_late_alarm_is_recalled_but_not_early() -> None:
    """An alarm 10 s before the onset warns, but not 15 s ahead."""
    told = score(count(series(600, range(290, 310)), [300.0]))
    assert (told.recall, told.warned15) == (1.0, 0.0)


def test_a_false_alarm_costs_precision_and_calm() -> None:
    """An alarm that nothing follows is counted in both."""
    told = score(count(series(1000, range(500, 550)), [300.0]))
    assert told.recall == 0.0
    assert told.precision == 0.0
    assert told.calm == pytest.approx(50 / 760, abs=0.02)


def test_a_perfect_probability_has_skill_one_and_a_constant_none() -> None:
    """Skill compares with always saying the base rate."""
    perfect = [(float(t), float(240 <= t < 300), False) for t in range(600)]
    assert score(count(perfect, [300.0])).skill == pytest.approx(1.0, abs=0.02)
    base = [(float(t), 60 / 510, False) for t in range(600)]
    assert score(count(base, [300.0])).skill == pytest.approx(0.0, abs=0.01)
    assert score(count(base, [300.0])).auc == pytest.approx(0.5)


def test_counts_add_up_over_records() -> None:
    """Two records together are judged by their sums."""
    one, two = count(series(600, range(260, 310)), [300.0]), count(series(600), [300.0])
    assert score(one + two).recall == 0.5
    assert score(Counts()).skill is None
