"""One engine's readings in, assessments out."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.forecast.assessment import Assessment, ForecastOptions, PoolView
from exporter.forecast.forecaster import EngineForecaster
from exporter.kv.demand import GroupDemand, RequestDemand
from exporter.reading import EngineReading
from exporter.replay import assessments, pool_in
from exporter.sources.recording import Recording

DATA = Path(__file__).parent.parent / "data" / "forecast"
SHAREGPT, REAL = DATA / "a-sharegpt-4090.jsonl.gz", DATA / "real-cpu-burst.jsonl.gz"
POOL = PoolView(1000, RequestDemand((GroupDemand(16),)))


def readings(path: Path = SHAREGPT) -> Iterator[EngineReading]:
    for _, engines in Recording(path).readings():
        yield from engines


def quiet(time: float, **changes: object) -> EngineReading:
    """An engine that has done some work and is idle."""
    idle = EngineReading(
        time=time,
        model_name="m",
        engine="0",
        kv_usage=0.0,
        running=0.0,
        waiting=0.0,
        preemptions=0.0,
        prompt_tokens=1000.0,
        generation_tokens=1000.0,
        finished=10.0,
    )
    return replace(idle, **changes)  # type: ignore[arg-type]


def follow(forecaster: EngineForecaster, seen: Iterator[EngineReading] | list[EngineReading]) -> list[Assessment]:
    return [forecaster.observe(reading, POOL) for reading in seen]


def test_the_same_readings_give_the_same_forecasts() -> None:
    """Two replays of one recording with one seed agree in every figure; another seed gives others."""
    first, second = list(assessments(Recording(SHAREGPT))), list(assessments(Recording(SHAREGPT)))
    assert first == second
    other = list(assessments(Recording(SHAREGPT), seed=1))
    assert [a.probability for a in other] != [a.probability for a in first]


@pytest.mark.parametrize("path", [SHAREGPT, REAL], ids=["virtual", "real"])
def test_the_alarm_rings_before_the_first_preemption(path: Path) -> None:
    """On a recorded pool that runs out, the alarm is on before the first preemption."""
    rang = next(a.time for a in assessments(Recording(path)) if a.predicted)
    assert rang < first_preemption(path)


def first_preemption(path: Path) -> float:
    return next(event.time for event in Recording(path).events())


def test_every_figure_is_a_figure() -> None:
    """Probabilities are within 0..1 and rise with the horizon; demand is finite; times are never negative."""
    for assessment in assessments(Recording(SHAREGPT)):
        chances = [assessment.probability[h] for h in sorted(assessment.probability)]
        assert all(0 <= chance <= 1 for chance in chances)
        assert chances == sorted(chances)
        assert all(0 <= level < 1e6 for level in assessment.demand_ratio.values())
        until = assessment.time_to_exhaustion_seconds
        assert until is None or until >= 0


def test_the_alarm_s_horizons_are_always_forecast() -> None:
    """Whatever horizons a user asks for, they and those of the alarm are there."""
    forecaster = EngineForecaster(ForecastOptions(horizons=(30.0, 300.0)))
    last = [forecaster.observe(reading, pool_in(reading, None)) for reading in readings()][-1]
    assert set(last.probability) == {15.0, 30.0, 60.0, 300.0}


def test_a_sleeping_engine_is_asleep_and_not_at_risk() -> None:
    """Asleep there is no probability and no alarm, however full the gauge says the pool is."""
    last = follow(
        EngineForecaster(), [quiet(float(t), kv_usage=1.0, sleep_state="weights_offloaded") for t in range(30)]
    )[-1]
    assert (last.state, last.probability, last.predicted) == ("asleep", {}, None)


def test_requests_that_wait_while_nothing_runs_are_a_stall() -> None:
    """Waiting requests, none running and no token for minutes: stalled, from the pool's point of view not at risk."""
    seen = [quiet(float(t), waiting=5.0) for t in range(200)]
    states = [assessment.state for assessment in follow(EngineForecaster(), seen)]
    assert states[-1] == "stalled"
    assert "stalled" not in states[:100]


def test_an_idle_engine_is_ok() -> None:
    """Nothing runs, nothing waits: ok, for as long as it lasts."""
    last = follow(EngineForecaster(), [quiet(float(t)) for t in range(300)])[-1]
    assert last.state == "ok"
    assert not last.predicted


def test_a_reading_without_gauges_is_unknown() -> None:
    """An engine that has not reported its usage is unknown: no probability, no alarm."""
    last = follow(EngineForecaster(), [quiet(float(t), kv_usage=None) for t in range(30)])[-1]
    assert (last.state, last.probability, last.predicted) == ("unknown", {}, None)


def test_a_pool_of_unknown_size_is_unknown() -> None:
    """Without a pool the forecast abstains and says why."""
    last = EngineForecaster().observe(quiet(0.0), None)
    assert last.state == "unknown"
    assert "size" in last.reason


def test_a_restart_rings_nobody() -> None:
    """A restart after a full pool ends the alarm at once, and an engine that comes back idle rings nobody."""
    forecaster = EngineForecaster()
    full = [reading for reading in readings() if reading.time <= first_preemption(SHAREGPT) + 5]
    before = [forecaster.observe(reading, pool_in(reading, None)) for reading in full]
    assert before[-1].predicted
    pool, began = pool_in(full[-1], None), full[-1].time + 2
    empty = replace(next(readings()), running=0.0, waiting=0.0, kv_usage=0.0)
    after = [forecaster.observe(replace(empty, time=began + second), pool) for second in range(60)]
    assert not any(assessment.predicted for assessment in after)
    assert after[-1].state == "ok"


def test_a_gap_rings_nobody() -> None:
    """After minutes without a reading nothing is concluded from the jump."""
    forecaster = EngineForecaster()
    seen = [reading for reading in readings() if reading.time < 20]
    for reading in seen:
        forecaster.observe(reading, pool_in(reading, None))
    late = forecaster.observe(replace(seen[-1], time=seen[-1].time + 300), pool_in(seen[-1], None))
    assert not late.predicted


def test_preemptions_are_told_per_second_and_per_finished_request() -> None:
    """Six preemptions in a minute beside twelve finished requests: 0.1 a second, 0.5 a request."""
    seen = [
        quiet(float(t), preemptions=float(t // 10), finished=10.0 + t // 5, generation_tokens=1000.0 + t, running=1.0)
        for t in range(121)
    ]
    last = follow(EngineForecaster(), seen)[-1]
    assert last.preemptions_per_second == pytest.approx(0.1, rel=0.1)
    assert last.preemptions_per_finished_request == pytest.approx(0.5, rel=0.1)


def test_the_peak_outlives_the_moment() -> None:
    """A reading of one second is still the peak half a minute later."""
    seen = [quiet(float(t), kv_usage=0.97 if t == 50 else 0.1) for t in range(81)]
    assert follow(EngineForecaster(), seen)[-1].used_ratio_peak == 0.97
