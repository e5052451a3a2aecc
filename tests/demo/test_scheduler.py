"""The rules of scheduling, one by one and for any load."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.demo.engine import DemoEngine, EngineConfig, StepTime
from exporter.demo.scheduler import Limits, Request
from exporter.errors import InputError

SMALL = Limits(
    num_gpu_blocks=21, block_size=4, max_num_seqs=4, max_num_batched_tokens=16, max_model_len=64, prefix_caching=False
)
SECOND = StepTime(constant=1.0, per_token=0.0, per_kv_token=0.0)


def engine(*requests: Request, limits: Limits = SMALL) -> DemoEngine:
    """An engine whose every forward pass takes a second."""
    return DemoEngine(EngineConfig(limits=limits, step_time=SECOND), requests)


def test_a_prefill_takes_blocks_chunk_by_chunk() -> None:
    """A prompt longer than the token budget holds only the blocks of the chunks that are computed so far."""
    steps = list(engine(Request(0.0, 40, 2)).steps(until=10.0))
    assert [step.new_tokens for step in steps] == [16, 16, 8, 1]
    assert [step.used_blocks for step in steps] == [4, 8, 10, 0]


def test_admission_wants_room_for_the_whole_prompt() -> None:
    """A request whose whole prompt does not fit waits although its first chunk would fit."""
    steps = list(engine(Request(0.0, 48, 8), Request(0.5, 40, 1)).steps(until=5.0))
    assert [(step.running, step.waiting) for step in steps] == [(1, 0), (1, 1), (1, 1), (1, 1), (1, 1)]


def test_who_comes_first_is_served_first() -> None:
    """A small request does not overtake a large one that is blocked at the head of the queue."""
    steps = list(engine(Request(0.0, 48, 6), Request(0.5, 44, 2), Request(0.6, 4, 4)).steps(until=30.0))
    assert [step.finished for step in steps if step.finished] == [(0,), (1,), (2,)]


def test_the_last_admitted_is_preempted_and_starts_again() -> None:
    """When blocks run out the youngest loses its own, waits at the head, and computes prompt and answer again."""
    steps = list(engine(Request(0.0, 30, 20), Request(0.0, 30, 20), Request(14.0, 8, 40)).steps(until=99.0))
    preempting = [step for step in steps if step.preempted]
    assert [step.preempted for step in preempting] == [(1,)]
    assert preempting[0].new_tokens == 1
    again = next(step for step in steps if step.start >= preempting[0].end and step.new_tokens > 2)
    assert again.new_tokens == 16
    assert [step.finished for step in steps if step.finished] == [(0,), (1,), (2,)]


def test_a_preemption_is_counted_when_its_victim_runs_again() -> None:
    """The counter moves late, as vLLM's does: with the victim's next token."""
    running = engine(Request(0.0, 30, 20), Request(0.0, 30, 20))
    steps = running.steps(until=80.0)
    while not next(steps).preempted:
        pass
    assert running.tally.preemptions == 0
    list(steps)
    assert running.tally.preemptions == 1
    assert running.tally.request_preemptions.sum == 1


def test_the_watermark_keeps_blocks_free_at_admission_alone() -> None:
    """With a watermark a request that would just fit beside another waits; alone in the engine it runs."""
    limits = Limits(num_gpu_blocks=21, block_size=4, max_num_batched_tokens=80, max_model_len=79, watermark=0.2)
    alone = list(engine(Request(0.0, 76, 1), limits=limits).steps(until=2.0))
    assert alone[0].finished == (0,)
    beside = list(engine(Request(0.0, 32, 9), Request(0.5, 36, 1), limits=limits).steps(until=3.0))
    assert beside[-1].waiting == 1


def test_a_shared_prefix_is_held_once() -> None:
    """Requests with the same prefix share its full blocks, which count once."""
    limits = Limits(num_gpu_blocks=101, block_size=4, max_num_batched_tokens=256, max_model_len=64)
    requests = [Request(0.0, 18, 9, prefix="system", prefix_tokens=16) for _ in range(5)]
    sharing = engine(*requests, limits=limits)
    assert next(sharing.steps(until=1.0)).used_blocks == 4 + 5
    assert sharing.prefix_hits == 4 * 16


def test_a_prompt_larger_than_the_pool_blocks_the_queue() -> None:
    """A request that can never fit is not refused; it waits, and nothing behind it runs."""
    limits = Limits(num_gpu_blocks=9, block_size=4, max_model_len=64)
    stuck = engine(Request(0.0, 40, 1), Request(0.1, 4, 1), limits=limits)
    assert list(stuck.steps(until=100.0)) == []
    assert (stuck.running, stuck.waiting, stuck.usage) == (0, 2, 0.0)


def test_a_sleeping_engine_starts_nothing() -> None:
    """While asleep no forward pass starts; after waking up the queue is served."""
    sleeping = engine(Request(0.0, 4, 1))
    sleeping.sleep_level = 1
    assert list(sleeping.steps(until=5.0)) == []
    sleeping.sleep_level = 0
    assert next(sleeping.steps(until=7.0)).finished == (0,)


@pytest.mark.parametrize("request_", [Request(0.0, 64, 1), Request(0.0, 0, 1), Request(0.0, 4, 0)])
def test_a_request_no_model_could_serve_is_refused(request_: Request) -> None:
    """A prompt that is empty or fills the context, or an answer of no token, is refused with the rule."""
    with pytest.raises(InputError, match="1 to 63 tokens"):
        engine().submit(request_)


requests = st.lists(
    st.builds(
        Request,
        arrival=st.floats(0, 30),
        prompt_tokens=st.integers(1, 60),
        output_tokens=st.integers(1, 60),
        max_tokens=st.none() | st.integers(1, 60),
        prefix=st.sampled_from([None, "a", "b"]),
        prefix_tokens=st.integers(0, 40),
    ),
    max_size=25,
).map(lambda some: sorted(some, key=lambda request: request.arrival))
limits = st.builds(
    Limits,
    num_gpu_blocks=st.integers(18, 60),
    block_size=st.just(4),
    max_num_seqs=st.integers(1, 9),
    max_num_batched_tokens=st.integers(1, 40),
    max_model_len=st.just(64),
    watermark=st.sampled_from([0.0, 0.05]),
    prefix_caching=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(requests, limits)
def test_any_load_ends_and_gives_every_block_back(load: list[Request], bounds: Limits) -> None:
    """Whatever the load: limits hold at each step, every request ends once, and all blocks come back."""
    loaded = engine(*load, limits=bounds)
    finished: list[int] = []
    for step in loaded.steps(until=100_000.0):
        assert 0 < step.new_tokens <= bounds.max_num_batched_tokens
        assert step.running <= bounds.max_num_seqs
        assert step.used_blocks <= bounds.num_gpu_blocks - 1
        finished += step.finished
    assert sorted(finished) == list(range(len(load)))
    assert loaded.scheduler.pool.used == 0
    assert loaded.tally.prompt_tokens == sum(request.prompt_tokens for request in load)
    assert loaded.tally.generation_tokens == loaded.tally.generation_lengths.sum


@settings(max_examples=30, deadline=None)
@given(requests, limits, st.lists(st.floats(0.1, 40), max_size=10))
def test_how_far_it_is_driven_at_once_changes_nothing(load: list[Request], bounds: Limits, pauses: list[float]) -> None:
    """Going on in many small stretches gives the same forward passes as going on in one."""
    whole = list(engine(*load, limits=bounds).steps(until=400.0))
    driven = engine(*load, limits=bounds)
    parts = [step for until in [*sorted(pauses), 400.0] for step in driven.steps(until)]
    assert parts == whole
