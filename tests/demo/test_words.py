"""The demo's figures as text."""

from dataclasses import replace

import pytest

from exporter.demo import words
from exporter.reading import EngineReading
from exporter.snapshot import Capacity, EngineStatus, Headroom, Snapshot
from tests.support.snapshots import full_engine


def test_what_is_not_known_is_a_dash() -> None:
    """No figure is made up: what is not known is a dash in every form."""
    assert {words.percent(None), words.count(None), words.gibibytes(None)} == {"–"}


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (None, "not in sight"),
        (0.4, "now"),
        (41.5, "in about 42 s"),
        (119.0, "in about 119 s"),
        (600.0, "in about 10 min"),
    ],
)
def test_time_to_exhaustion_in_words(span: float | None, text: str) -> None:
    """Seconds below two minutes, minutes above, and never a number when none is in sight."""
    assert words.seconds(span) == text


def test_a_prediction_names_time_and_driver() -> None:
    """The sentence of a prediction says what, when and why."""
    assessment = full_engine().assessment
    assert words.sentence(assessment) == (
        "KV cache is predicted to run out in about 42 s; driven by a burst of requests"
    )
    bare = replace(assessment, time_to_exhaustion_seconds=None, driver="none")
    assert words.sentence(bare) == "KV cache is predicted to run out"


def test_any_other_state_gives_its_reason() -> None:
    """Where nothing is predicted, the rule behind the state is the sentence."""
    assessment = replace(full_engine().assessment, state="stalled", reason="requests wait and none runs")
    assert words.sentence(assessment) == "requests wait and none runs"


def test_a_line_has_every_figure() -> None:
    """The plain line names time, state, usage, headroom, probability, time to exhaustion, load, preemptions, driver."""
    status = full_engine()
    line = words.line(Snapshot(time=83.2, wall_time=0.0, duration_seconds=0.0, ticks=1, engines=(status,)), status)
    for part in (
        "t=    83 s",
        "predicted",
        "42 %",
        "76,032 tokens",
        "93 requests",
        "P60 0.70",
        "out in about 42 s",
        "running 12, waiting 3",
        "preempted 7",
        "driver burst_concurrency",
    ):
        assert part in line
    assert "\n" not in line


def test_a_line_of_an_engine_that_is_gone() -> None:
    """An engine of which nothing is known gives a line of dashes, not an error."""
    assessment = replace(full_engine().assessment, state="unknown", probability={}, driver=None)
    gone = EngineStatus("", EngineReading(0.0, "m", "0"), Capacity(), Headroom(), None, assessment)
    line = words.line(Snapshot(time=1.0, wall_time=0.0, duration_seconds=0.0, ticks=1, engines=(gone,)), gone)
    assert "unknown" in line
    assert "P60 –" in line
