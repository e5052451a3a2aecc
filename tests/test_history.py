from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.history import MAX_ENGINES, SECONDS, History
from exporter.snapshot import Snapshot
from tests.support.snapshots import full_engine

KEY = ("", "meta-llama/Llama-3.1-8B", "0")


def tick(time: float, usage: float | None = 0.5, preemptions: float | None = 0.0, engine: str = "0") -> Snapshot:
    status = full_engine(engine)
    reading = replace(status.reading, kv_usage=usage, preemptions=preemptions)
    return Snapshot(time, 0.0, 0.0, 0, (replace(status, reading=reading),))


def test_points_come_oldest_first_with_their_age() -> None:
    """What was fed comes back in order, each point with its age at the time asked for."""
    history = History()
    for second, usage in enumerate((0.1, 0.2, 0.3)):
        history.add(tick(100.0 + second, usage))
    trace = history.trace(KEY, now=102.0)
    assert trace.seconds_ago == (2.0, 1.0, 0.0)
    assert trace.used_ratio == pytest.approx((0.1, 0.2, 0.3))
    assert trace.running == (12.0, 12.0, 12.0)
    assert trace.waiting == (3.0, 3.0, 3.0)


def test_preemptions_are_counted_between_points() -> None:
    """A counter's rise belongs to the point at which it was seen; the first reading and a reset give none."""
    history = History()
    for second, counter in enumerate((7.0, 7.0, 10.0, 2.0, 3.0)):
        history.add(tick(100.0 + second, preemptions=counter))
    assert history.trace(KEY, now=104.0).preemptions == (0, 0, 3, 0, 1)


def test_ticks_within_a_second_share_a_point() -> None:
    """Ten ticks a second take no more room than one: the highest usage and all preemptions stay."""
    history = History()
    for tenth in range(20):
        history.add(tick(100.0 + tenth / 10, usage=0.9 if tenth == 3 else 0.1, preemptions=float(tenth)))
    trace = history.trace(KEY, now=102.0)
    assert trace.used_ratio == pytest.approx((0.9, 0.1))
    assert sum(trace.preemptions) == 19


def test_an_engine_that_tells_nothing_leaves_a_gap() -> None:
    """While an engine is unknown its points are absent, not zero."""
    history = History()
    for second, usage in enumerate((0.4, None, None, 0.6)):
        history.add(tick(100.0 + second, usage, None if usage is None else 0.0))
    assert history.trace(KEY, now=103.0).used_ratio == (0.4, None, None, 0.6)


def test_what_is_older_than_the_window_is_left_out() -> None:
    """A shorter window holds its own seconds alone, and the ring forgets what is older than itself."""
    history = History()
    for second in range(SECONDS + 200):
        history.add(tick(float(second)))
    now = float(SECONDS + 199)
    assert len(history.trace(KEY, now, seconds=60).seconds_ago) == 61
    assert max(history.trace(KEY, now, points=SECONDS).seconds_ago) == SECONDS - 1


def test_neighbours_that_share_a_point_always_share_it() -> None:
    """As time goes on, points move left and keep their values: a drawing does not shimmer."""
    history = History()
    for second in range(90):
        history.add(tick(float(second), usage=(second * 7 % 11) / 11))
    before = history.trace(KEY, now=89.0, points=30).used_ratio
    history.add(tick(90.0, usage=0.5))
    after = history.trace(KEY, now=90.0, points=31).used_ratio
    assert after[: len(before)] == before


def test_engines_beyond_the_bound_have_no_history() -> None:
    """However many engines a page invents, no more than the bound are remembered."""
    history = History()
    engines = tuple(full_engine(str(number)) for number in range(MAX_ENGINES + 5))
    history.add(Snapshot(1.0, 0.0, 0.0, 0, engines))
    traces = [history.trace(("", "meta-llama/Llama-3.1-8B", str(n)), now=1.0) for n in range(MAX_ENGINES + 5)]
    assert sum(bool(trace.seconds_ago) for trace in traces) == MAX_ENGINES


@pytest.mark.parametrize("preemptions", [0.0, None], ids=["told", "never told"])
def test_an_engine_that_has_gone_makes_room(preemptions: float | None) -> None:
    """When nothing of an engine is left in the ring its place is free again, also of one without preemptions."""
    history = History()
    history.add(tick(0.0, preemptions=preemptions))
    for second in range(1, SECONDS + 2):
        history.add(Snapshot(float(second), 0.0, 0.0, 0))
    assert history.trace(KEY, now=float(SECONDS + 1)).seconds_ago == ()


def test_an_engine_never_seen_has_an_empty_past() -> None:
    """Asking for an unknown engine, before or after the first tick, gives a trace without points."""
    history = History()
    assert history.trace(KEY, now=0.0).seconds_ago == ()
    history.add(tick(0.0, engine="1"))
    assert history.trace(KEY, now=0.0).seconds_ago == ()


@settings(max_examples=50, deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(0.05, 20), st.none() | st.floats(0, 1)), min_size=1, max_size=60),
    points=st.integers(1, 50),
)
def test_no_drawing_hides_the_highest_usage(steps: list[tuple[float, float | None]], points: int) -> None:
    """However coarse the trace and however irregular the ticks, the highest usage of the window is in it."""
    history, time = History(), 0.0
    seen: list[float] = []
    for step, usage in steps:
        time += step
        history.add(tick(time, usage))
        if usage is not None:
            seen.append(usage)
    told = [usage for usage in history.trace(KEY, now=time, seconds=1e9, points=points).used_ratio if usage is not None]
    assert (max(told) if told else None) == (pytest.approx(max(seen), abs=1e-4) if seen else None)
