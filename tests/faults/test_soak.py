"""What the day-long soak (`python -m bench.soak`) shows at length, in short: nothing is kept of what is gone."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.census import Growth, Held, census
from bench.soak import Soak
from exporter import models, watch

WINDOWS = {"Arrivals", "TrendWindow", "Scorecard", "History", "SteadyClock"}
"""What remembers hours, and is longer for as long as they have not passed; and the clock, below which is the world."""


def grown(before: dict[str, Held], after: dict[str, Held]) -> dict[str, tuple[int, int]]:
    """Who holds a good deal more items than before, apart from the windows."""
    pairs = {owner: (before.get(owner, Held()).items, held.items) for owner, held in after.items()}
    return {
        owner: (then, now)
        for owner, (then, now) in pairs.items()
        if now > then * 1.25 + 20 and owner.partition(".")[0] not in WINDOWS
    }


def test_a_storm_of_names_is_bounded_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that are new with every reading are cut off at a number, and after a while none is remembered."""
    monkeypatch.setattr(watch, "MAX_ENGINES", 40)
    monkeypatch.setattr(watch, "FORGET_SECONDS", 120.0)
    monkeypatch.setattr(models, "MAX_MODELS", 20)
    monkeypatch.setattr(models, "FORGET_SECONDS", 120.0)
    soak = Soak(tmp_path, interval=10)
    soak.world.guests_come = False
    soak.run(420)  # the longest window of readings is full
    soak.look()
    soak.run(10)
    before = soak.held
    soak.world.storming = True
    soak.run(90)
    latest = soak.monitor.latest
    assert latest is not None
    assert 30 <= len(latest.engines) <= 40
    assert soak.held["ServedModels._known"].items <= 20 + 20 * 5
    assert soak.most_series < 40 * 100
    soak.world.storming = False
    soak.run(130)
    soak.look()
    latest = soak.monitor.latest
    assert latest is not None
    assert len(latest.engines) == soak.world.engines == 2
    assert not grown(before, soak.held)
    assert soak.faults == []
    soak.monitor.close()


def test_two_hours_of_coming_and_going_grow_nothing(tmp_path: Path) -> None:
    """Guests, outages, restarts, sleep and a lost GPU, with every memory of them run out by the end of each hour."""
    soak = Soak(tmp_path, interval=60)
    soak.run(3600)
    soak.look()
    soak.run(60)
    before, series = soak.held, soak.page_series
    soak.run(3540)
    soak.look()
    soak.run(60)
    assert not grown(before, soak.held)
    assert abs(soak.page_series - series) <= 10
    assert soak.most_series < 600
    assert soak.faults == []
    assert soak.late == 0
    soak.monitor.close()


@dataclass
class Hoarder:
    """Keeps one thing more each time it is asked."""

    kept: list[int]
    steady: dict[str, int]


def test_the_census_finds_what_grows() -> None:
    """A list that only gets longer is named with its owner; what stays as it is is not."""
    hoarder = Hoarder([], {"a": 1})
    growth = Growth()
    for number in range(3):
        growth.add(census({"it": hoarder}, packages=("tests",)))
        hoarder.kept += range(number * 1000, number * 1000 + 30)
    assert list(growth.told()) == ["Hoarder.kept: 0 → 60"]
