"""The parts of the forecast's model, each against what can be worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.forecast.arrivals import Arrivals
from exporter.forecast.assessment import PoolView
from exporter.forecast.blocks import BlockLine, block_line
from exporter.forecast.bounds import ENDED
from exporter.forecast.coming import Coming
from exporter.forecast.grid import Grid
from exporter.forecast.lengths import Ended, LengthSample, evenly, newly_finished
from exporter.forecast.recalibration import FITTED, Evidence, coefficients, log_odds, moments, probability
from exporter.forecast.rollout import Load, roll
from exporter.forecast.running import RunningTracker
from exporter.forecast.schedule import Engine
from exporter.forecast.seats import SeatLimit
from exporter.forecast.steps import StepTimes
from exporter.forecast.window import Window, rise
from exporter.kv.demand import GroupDemand, RequestDemand
from exporter.reading import EngineReading
from tests.forecast.engines import Engine as MadeUp
from tests.forecast.engines import Request, histogram


def coming(*requests: tuple[float, float, float]) -> Coming:
    """One future's requests: seconds from now, prompt, output."""
    arrival, prompt, output = np.array(requests).reshape(-1, 3).T
    return Coming(np.array([len(requests)]), arrival, prompt, output)


def load(**changes: object) -> Load:
    """One future of one running request and nobody else."""
    base = Load(
        used_blocks=10.0,
        context=np.array([152.0]),
        left=np.array([[1000.0]]),
        coming=coming(),
        backlog=0.0,
        chance=np.full((1, 30), 0.5),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def engine(blocks: float = 100.0, seats: float = 1e9, watermark: float = 0.0) -> Engine:
    return Engine(BlockLine(blocks, 1 / 16, 0.5), seats, 1e9, watermark, t0=0.05, t1=0.0, t2=0.0)


def test_one_finished_request_gives_its_exact_length() -> None:
    """The rise of the sum is the length of the only one that finished."""
    assert newly_finished(histogram([5.0]), histogram([5.0, 321.0])).tolist() == [321.0]


@settings(deadline=None)
@given(st.lists(st.integers(1, 20_000), min_size=2, max_size=30))
def test_several_finished_requests_add_up_inside_their_buckets(lengths: list[int]) -> None:
    """Each stays in its bucket and all together make the total, as far as the buckets allow."""
    found = newly_finished(None, histogram([float(n) for n in lengths]))
    assert len(found) == len(lengths)
    assert found.sum() == pytest.approx(sum(lengths), rel=1e-6)


@settings(deadline=None)
@given(st.lists(st.floats(1, 5000), min_size=1, max_size=50), st.floats(0, 8000))
def test_a_request_seen_running_is_longer_than_its_age(lengths: list[float], age: float) -> None:
    """Residual life is drawn beyond the age, also where nothing finished was that long."""
    sample = LengthSample()
    sample.add(np.array(lengths))
    drawn = sample.draw_beyond(np.array([age]), np.random.default_rng(0).random((20, 1)), 1e6)
    assert (drawn >= age + 1).all()


def test_lengths_of_a_long_past_are_those_of_all_its_requests() -> None:
    """Beside a server that has finished a hundred thousand, the sample is as the histogram, not its longest part."""
    lengths = [float(n) for n in np.random.default_rng(3).integers(10, 4000, 100_000)]
    told = newly_finished(None, histogram(lengths))
    assert len(told) <= ENDED
    assert evenly(told).mean() == pytest.approx(np.mean(lengths), rel=0.02)
    assert len(evenly(told)) == 1500


def test_lengths_follow_the_newest_requests() -> None:
    """Only so many are kept, oldest first out."""
    sample = LengthSample(keep=10)
    sample.add(np.arange(1.0, 26.0))
    assert sample.newest.tolist() == [float(n) for n in range(16, 26)]
    assert sample.mean() == pytest.approx(20.5)


def test_step_times_recover_the_truth() -> None:
    """The regression finds the three constants from totals alone, within a tenth."""
    steps, random = StepTimes(), np.random.default_rng(1)
    for _ in range(600):
        tokens, resident = random.uniform(5, 400), random.uniform(1e3, 4e4)
        count = 15.0
        seconds = count * (0.055 + 1.4e-4 * tokens + 4.6e-7 * resident)
        steps.observe(seconds, count, count * tokens, resident, busy=True)
    assert steps.coefficients() == pytest.approx((0.055, 1.4e-4, 4.6e-7), rel=0.1)


def test_idle_seconds_teach_nothing_of_speed() -> None:
    """An engine that waits for work is not slow."""
    steps = StepTimes()
    steps.observe(1.0, 0.0, 0.0, 0.0, busy=False)
    assert not steps.known


def test_the_running_set_is_rebuilt_from_the_page() -> None:
    """Beside an engine whose requests are known, the tracker knows number, total age and total context."""
    made_up, tracker, before = MadeUp(2000), RunningTracker(), None
    line = BlockLine(2000.0, 1 / 16, 0.5)
    for second in range(120):
        reading = made_up.tick([Request(50 + 10 * (second % 7), 100 + 40 * (second % 11))])
        tracker.observe(before, reading, Ended.between(before, reading), line, 80.0)
        before = reading
    state = tracker.state
    assert len(state.age) == len(made_up.running)
    assert state.age.sum() == pytest.approx(sum(r.age for r in made_up.running))
    assert (state.prompt + state.age).sum() == pytest.approx(sum(r.prompt + r.age for r in made_up.running), rel=0.05)


def test_preempted_requests_wait_first_in_the_queue() -> None:
    """Running requests that vanish without finishing were preempted, and keep what they had generated."""
    made_up, tracker, before = MadeUp(150), RunningTracker(), None
    for _ in range(40):
        reading = made_up.tick([Request(100, 2000)])
        tracker.observe(before, reading, Ended.between(before, reading), BlockLine(150.0, 1 / 16, 0.5), 100.0)
        before = reading
        if reading.preemptions:
            break
    assert made_up.totals["preempted"]
    assert len(tracker.state.preempted_prompt) >= 1


def test_demand_is_a_ramp_that_ends() -> None:
    """One running request grows by a token a step and gives everything back at its end."""
    futures = roll(engine(), load(left=np.array([[400.0]])), Grid())
    grown = 10 + 10 / (0.05 * 16)
    assert futures.demand[0, 9] * 100 == pytest.approx(grown, abs=0.1)
    assert futures.demand[0, 30] == pytest.approx(0.0, abs=0.01)
    assert np.isinf(futures.exhausted_at[0])


def test_growth_past_the_pool_is_exhaustion() -> None:
    """A request that outgrows the pool exhausts it when the last block is gone."""
    futures = roll(engine(20.0), load(), Grid())
    assert futures.exhausted_at[0] == pytest.approx(10 * 16 * 0.05, abs=2.0)


def test_a_prompt_that_does_not_fit_waits_and_exhausts_nothing() -> None:
    """Demand passes capacity, but vLLM holds the request back while the running one ends."""
    held_back = load(
        left=np.array([[100.0]]),
        coming=coming((0.0, 1450.0, 100.0)),
    )
    futures = roll(engine(), held_back, Grid())
    assert futures.demand.max() > 1.0
    assert np.isinf(futures.exhausted_at[0])


def test_a_sequence_limit_keeps_the_queue_out() -> None:
    """With every seat taken, arrivals do not count before one ends."""
    arriving = load(coming=coming((0.0, 800.0, 300.0)))
    with_seat, without = (roll(engine(seats=n), arriving, Grid()).demand[0, 5] for n in (2.0, 1.0))
    assert with_seat - without == pytest.approx(0.5 + 6 / 0.05 / 16 / 100 + 0.005, abs=0.02)


def test_arrivals_continue_at_the_rate_seen() -> None:
    """A steady rate goes on, and times rise along each future."""
    arrivals, random = Arrivals(), np.random.default_rng(0)
    for _ in range(1800):
        arrivals.observe(1.0, 2.0)
    times, count = arrivals.continuations(random, 200, 60.0)
    assert count.mean() == pytest.approx(120, rel=0.1)
    each = np.split(times, np.cumsum(count)[:-1])
    assert all((np.diff(future) >= 0).all() for future in each)
    assert all(((future >= 0) & (future <= 60)).all() for future in each)
    assert np.mean([np.median(future) for future in each]) == pytest.approx(30, rel=0.05)


def test_a_hybrid_model_counts_its_fixed_blocks_once() -> None:
    """Groups with a cap are constants per request, the others a slope."""
    demand = RequestDemand((GroupDemand(16), GroupDemand(16, cap=4, groups=3)))
    line = block_line(PoolView(100, demand), 1000.0)
    assert (line.per_token, line.per_request) == (1 / 16, 0.5 + 12)


@settings(deadline=None)
@given(st.floats(5, 600))
def test_coefficients_lie_between_the_fitted_ones(horizon: float) -> None:
    """Any horizon has coefficients, on a line between its neighbours."""
    for k, found in enumerate(coefficients(horizon)):
        values = [fit[k] for fit in FITTED.values()]
        assert min(values) - 1e-9 <= found <= max(values) + 1e-9


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 3))
def test_probabilities_are_ordered_and_finite(share: float, usage: float, peak: float) -> None:
    """No evidence makes a probability that falls with the horizon or leaves 0..1."""
    shares = dict.fromkeys(moments(tuple(FITTED)), share)
    odds = log_odds(Evidence(shares, peak, usage, usage, math.inf), tuple(FITTED))
    chances = [probability(odds[h]) for h in sorted(odds)]
    assert chances == sorted(chances)
    assert all(0 < p < 1 for p in chances)


def reading(time: float, **values: object) -> EngineReading:
    return EngineReading(time=time, model_name="m", engine="0", **values)  # type: ignore[arg-type]


def test_a_counter_that_falls_gives_no_rate() -> None:
    """The window starts anew at a reset, and says so."""
    window = Window()
    window.add(reading(0.0, generation_tokens=100.0))
    window.add(reading(1.0, generation_tokens=200.0))
    assert window.rate("generation_tokens", 60.0) == 100.0
    assert window.add(reading(2.0, generation_tokens=5.0)).reset
    assert window.rate("generation_tokens", 60.0) is None
    assert rise(5.0, 200.0) is None


def test_a_silence_breaks_the_series() -> None:
    """After a gap nothing before it counts."""
    window = Window(gap=90.0)
    window.add(reading(0.0, kv_usage=0.9))
    assert window.add(reading(200.0, kv_usage=0.1)).gap
    assert window.peak_usage(300.0) == 0.1
    assert window.mean_usage == 0.1


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_the_peak_of_the_last_minute_is_kept(usages: list[float]) -> None:
    """What one second saw is not lost to a slower scrape."""
    window = Window()
    for second, usage in enumerate(usages):
        window.add(reading(float(second), kv_usage=usage))
    assert window.peak_usage(60.0) == max(usages)
    assert window.mean_usage == pytest.approx(sum(usages) / len(usages))


def test_a_queue_beside_free_blocks_tells_the_sequence_limit() -> None:
    """The same number running, others waiting and room in the pool: that number is the limit, until it is passed."""
    seats = SeatLimit()
    for second in range(6):
        seats.observe(reading(float(second), running=24.0, waiting=9.0, kv_usage=0.4))
    assert seats.limit == 24.0
    seats.observe(reading(7.0, running=25.0, waiting=0.0, kv_usage=0.4))
    assert seats.limit is None


def test_a_queue_beside_a_full_pool_tells_no_limit() -> None:
    """Requests that wait for blocks say nothing of seats."""
    seats = SeatLimit()
    for second in range(20):
        seats.observe(reading(float(second), running=24.0, waiting=9.0, kv_usage=0.97))
    assert seats.limit is None
