"""The live view, drawn onto a console of text."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from exporter.demo.view import View
from exporter.forecast.assessment import Assessment, State
from exporter.reading import EngineReading
from exporter.snapshot import Capacity, EngineStatus, Headroom, Snapshot, SourceHealth
from tests.support.snapshots import full_engine


def drawn(view: View, snapshot: Snapshot | None, width: int = 80) -> str:
    """What a terminal of that width shows."""
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(view.draw(snapshot))
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def snapshot(*engines: EngineStatus, ticks: int = 1, sources: tuple[SourceHealth, ...] = ()) -> Snapshot:
    """One tick."""
    return Snapshot(time=83.0, wall_time=0.0, duration_seconds=0.0, ticks=ticks, engines=engines, sources=sources)


def test_it_shows_what_matters() -> None:
    """Pool, headroom, probability, time to exhaustion, preemptions, driver, notes: all are on the screen."""
    text = drawn(View("demo: burst", ["Exporter: http://127.0.0.1:9488/"]), snapshot(full_engine()), width=120)
    for part in (
        "demo: burst, second 83",
        "KV cache is predicted to run out in about 42 s",
        "42 %, peak 60 %",
        "76,032 of 131,088 tokens, 93 requests",
        "12 running, 3 waiting",
        "70 % in 60 s",
        "a burst of requests",
        "7 so far, 0.10 a second, 0.02 per finished request",
        "kv_cache_dtype=fp8 × 2.00",
        "http://127.0.0.1:9488/",
    ):
        assert part in text


def test_a_bar_is_as_long_as_the_pool_is_full() -> None:
    """The filled part of the bar is the usage."""
    text = drawn(View("demo", []), snapshot(full_engine()))
    assert text.count("█") == round(0.42 * 40)


def test_the_past_grows_by_a_reading_a_tick() -> None:
    """The line of the past has one mark for each tick, however often it is drawn."""
    view = View("demo", [])
    for ticks in (1, 1, 2, 3, 3):
        text = drawn(view, snapshot(full_engine(), ticks=ticks))
    assert text.count("▃") == 3


def test_nothing_is_drawn_before_the_first_tick() -> None:
    """Before the first reading the view says that it waits."""
    assert "waiting for the first reading" in drawn(View("demo", []), None)


def test_several_engines_are_told_apart() -> None:
    """With two engines each has its own figures under its name."""
    text = drawn(View("demo", []), snapshot(full_engine("0"), full_engine("1")))
    assert text.count("KV cache is predicted") == 2
    assert "engine" in text


def test_a_source_that_is_down_says_why() -> None:
    """A source's trouble is on the screen in its own words."""
    down = SourceHealth("vllm", "", up=False, reason="refused", message="nothing listens there")
    assert "vllm: nothing listens there" in drawn(View("demo", []), snapshot(sources=(down,)))


@pytest.mark.parametrize("state", ["ok", "watch", "predicted", "exhausted", "stalled", "asleep", "unknown"])
def test_every_state_can_be_drawn(state: State) -> None:
    """Each state is named, with everything known and with nothing known."""
    known = replace(full_engine().assessment, state=state)
    nothing = Assessment(0.0, "m", "0", state, "no reading")
    for assessment, reading in ((known, full_engine().reading), (nothing, EngineReading(0.0, "m", "0"))):
        status = EngineStatus("", reading, Capacity(), Headroom(), None, assessment)
        assert state in drawn(View("demo", []), snapshot(status))


def test_it_fits_a_small_terminal() -> None:
    """At 80 columns no line is broken off and the whole fits 24 lines."""
    notes = ["burst: Steady chat.", "Watch for: the probability.", "Exporter: http://127.0.0.1:9488/"]
    lines = drawn(View("demo: burst at 60 times the speed", notes), snapshot(full_engine())).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
