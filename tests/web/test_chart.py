import re
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.web.chart import HIGH, WIDE, describe, pool_chart
from exporter.web.status import Demand, Engine, Past
from exporter.web.telling import tell
from tests.web.scenes import SCENES


@cache
def engine_of(name: str, window: int = 900) -> Engine:
    made = SCENES[name]()
    return tell(made.snapshot, made.history, made.snapshot.time, 8.0, window).engines[0]


def drawn(engine: Engine) -> ElementTree.Element:
    return ElementTree.fromstring(pool_chart(engine, "pool"))


def with_past(*points: tuple[float, float | None, int]) -> Engine:
    ago, used, preempted = zip(*points, strict=True)
    nothing = (None,) * len(points)
    return replace(engine_of("ok"), history=Past(900, ago, used, preempted, nothing, nothing))


def test_the_picture_is_told_in_words() -> None:
    """Who cannot see the chart learns what it shows: now, the range, preemptions, the projection."""
    assert describe(engine_of("predicted")) == (
        "Now 83 % of the pool is in use; in the last 15 min it was between 21 % and 96 %; no preemption in that time; "
        "in 60 s the projection is 103 %, in a bad case 121 %."
    )
    said = describe(with_past((40.0, 1.0, 2), (20.0, 0.9, 1), (0.0, 0.5, 0)))
    assert "3 preemptions in that time, the last about 20 s ago" in said


def test_without_a_past_or_projection_the_words_say_so() -> None:
    """An engine of which nothing is known has a chart that says nothing false."""
    nothing = replace(engine_of("vllm-down"), history=Past(900, (), (), (), (), ()))
    assert describe(nothing) == "No projection."
    assert drawn(nothing).find(".//path") is None


def test_a_gap_breaks_the_line() -> None:
    """Where the engine told nothing no line is drawn over the gap, and a lone point is a dot."""
    chart = drawn(with_past((5.0, 0.1, 0), (4.0, 0.2, 0), (3.0, None, 0), (2.0, 0.3, 0), (1.0, None, 0)))
    lines = [path.get("d") for path in chart.iter("path") if path.get("class") == "used"]
    assert len(lines) == 2
    assert lines[1] is not None
    assert lines[1].endswith("h0")


def test_preemptions_are_marked_where_they_happened() -> None:
    """One mark for each point with preemptions, none otherwise."""
    chart = drawn(with_past((900.0, 0.9, 0), (450.0, 0.9, 3), (0.0, 0.9, 1)))
    marks = [path.get("d") for path in chart.iter("path") if path.get("class") == "preempted"]
    assert marks == [f"M500 {HIGH}v-90M1000 {HIGH}v-90"]


@pytest.mark.parametrize("window", [60, 300, 900])
def test_the_axis_names_its_window(window: int) -> None:
    """The oldest tick of the axis is the window's length, and the projection ends a minute ahead."""
    labels = ["".join(span.itertext()) for span in drawn(engine_of("ok", window)).iter("span")]
    assert labels[0] == {60: "−60 s", 300: "−5 min", 900: "−15 min"}[window]
    assert "+60 s" in labels


RATIOS = st.floats(0, 50)


@settings(max_examples=60, deadline=None)
@given(used=st.lists(st.none() | RATIOS, min_size=1, max_size=20), median=RATIOS, bad=RATIOS, now=st.none() | RATIOS)
def test_nothing_is_drawn_outside_the_picture(
    used: list[float | None], median: float, bad: float, now: float | None
) -> None:
    """However far demand exceeds the pool, every point lies within the drawing."""
    base = with_past(*((float(len(used) - place), ratio, 0) for place, ratio in enumerate(used)))
    demand = (Demand(60.0, 0.5, median), Demand(60.0, 0.9, bad))
    engine = replace(base, pool=replace(base.pool, used_ratio=now), forecast=replace(base.forecast, demand=demand))
    for path in drawn(engine).iter("path"):
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.get("d", ""))]
        assert all(0 <= number <= max(WIDE, HIGH) for number in numbers)
    for element in drawn(engine).iter():
        for name in ("y", "y1", "y2"):
            place = element.get(name, "0%")
            assert 0 <= float(place.removesuffix("%")) <= 100
