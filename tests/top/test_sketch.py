from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.top.sketch import AHEAD_SHARE, SCALE_WIDTH, Row, bar, pool_rows, stack
from exporter.web.status import Demand, Engine, Past, Segment
from exporter.web.telling import tell
from tests.web.scenes import SCENES


@cache
def engine_of(name: str) -> Engine:
    made = SCENES[name]()
    return tell(made.snapshot, made.history, made.snapshot.time, 8.0).engines[0]


def text(row: Row) -> str:
    return "".join(piece for piece, _ in row)


def test_the_drawing_has_the_size_asked_for() -> None:
    """Every row is as wide as the place it gets, and below them stands the axis."""
    rows = pool_rows(engine_of("predicted"), 80, 8)
    assert [len(text(row)) for row in rows[:8]] == [80] * 8
    assert "−15 min" in text(rows[-1])
    assert "+60 s" in text(rows[-1])


def test_full_is_where_a_full_pool_reaches() -> None:
    """At 100 % the columns reach the row that is labelled so, and demand beyond it rises above."""
    past = Past(900, (450.0, 0.0), (1.0, 1.0), (0, 0), (None, None), (None, None))
    full = replace(engine_of("ok"), history=past, forecast=replace(engine_of("ok").forecast, demand=()))
    (row,) = [text(row) for row in pool_rows(full, 60, 6) if "100 %" in text(row)]
    assert "█" in row
    beyond = replace(full, forecast=replace(full.forecast, demand=(Demand(60.0, 0.5, 1.5), Demand(60.0, 0.9, 2.0))))
    rows = [text(row) for row in pool_rows(beyond, 60, 6)]
    label = next(place for place, row in enumerate(rows) if "100 %" in row)
    assert label > 0
    assert any("░" in row or "█" in row for row in rows[:label])


def test_preemptions_are_marked_below() -> None:
    """A row of marks shows when requests were preempted, and is left out when none was."""
    past = Past(900, (450.0, 10.0), (0.9, 0.9), (2, 0), (None, None), (None, None))
    rows = [text(row) for row in pool_rows(replace(engine_of("ok"), history=past), 80, 4)]
    assert rows[4].count("▲") == 1
    assert not any("▲" in text(row) for row in pool_rows(engine_of("ok"), 80, 4))


def test_a_gap_stays_empty() -> None:
    """Where nothing was known nothing is drawn."""
    ages = tuple(float(age) for age in range(900, -1, -3))
    used = tuple(None if 300 <= age <= 600 else 1.0 for age in ages)
    nothing = (None,) * len(ages)
    past = Past(900, ages, used, (0,) * len(ages), nothing, nothing)
    row = text(pool_rows(replace(engine_of("ok"), history=past), 100, 4)[3])[SCALE_WIDTH:]
    width = round((100 - SCALE_WIDTH) * (1 - AHEAD_SHARE))
    assert row[: width // 4].count("█") == width // 4
    assert "█" not in row[int(width * 0.36) : int(width * 0.64)]


@settings(max_examples=50, deadline=None)
@given(width=st.integers(1, 200), height=st.integers(1, 30), name=st.sampled_from(["ok", "exhausted", "vllm-down"]))
def test_no_size_is_too_small(width: int, height: int, name: str) -> None:
    """Even on an absurd terminal something is drawn and nothing fails."""
    assert len(pool_rows(engine_of(name), width, height)) >= height


@given(ratio=st.none() | st.floats(-1, 3), width=st.integers(1, 50))
def test_a_bar_fills_its_place(ratio: float | None, width: int) -> None:
    """A bar is always as wide as its place, full at most."""
    assert len(text(bar(ratio, width, "used"))) == width


@given(sizes=st.lists(st.integers(0, 10**12), max_size=8), width=st.integers(10, 100))
def test_a_stack_fills_its_place_and_shows_every_part(sizes: list[int], width: int) -> None:
    """However small, a part that is not empty is seen, and together they are as wide as their place."""
    row = stack([Segment("other", size, "measured") for size in sizes], width)
    assert len(row) == sum(size > 0 for size in sizes)
    if row:
        assert len(text(row)) == width


@pytest.mark.parametrize("name", SCENES)
def test_every_state_can_be_drawn(name: str) -> None:
    """No state of the world is without a drawing."""
    assert len(pool_rows(engine_of(name), 80, 5)) >= 6
