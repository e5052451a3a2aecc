"""Requests of many roll-outs in one array: each roll-out is as if it were alone."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.forecast.coming import Coming
from exporter.forecast.grid import Grid
from exporter.forecast.lengths import LengthSample
from exporter.forecast.rollout import Futures

Request = tuple[float, float, float]
requests = st.lists(st.tuples(st.floats(0, 120), st.floats(1, 5000), st.floats(1, 5000)), max_size=6).map(sorted)
rollouts = st.lists(requests, min_size=1, max_size=8)


def coming(futures: Sequence[Sequence[Request]]) -> Coming:
    arrival, prompt, output = np.array([request for each in futures for request in each]).reshape(-1, 3).T
    return Coming(np.array([len(each) for each in futures]), arrival, prompt, output)


def futures_of(all_of_them: Coming) -> list[list[Request]]:
    rows = [*zip(all_of_them.arrival, all_of_them.prompt, all_of_them.output, strict=True)]
    ends = np.cumsum(all_of_them.count)
    return [rows[end - count : end] for end, count in zip(ends, all_of_them.count, strict=True)]


@settings(deadline=None)
@given(rollouts, st.data())
def test_some_roll_outs_are_those_that_were_asked_for(futures: list[list[Request]], data: st.DataObject) -> None:
    """Each keeps its own requests, in whatever order they are taken, and those that are left out are gone."""
    chosen = data.draw(st.lists(st.integers(0, len(futures) - 1), max_size=6))
    assert futures_of(coming(futures).of(np.array(chosen, dtype=np.intp))) == [futures[number] for number in chosen]
    short = coming(futures).only(coming(futures).prompt <= 1000)
    assert futures_of(short) == [[request for request in each if request[1] <= 1000] for each in futures]


@settings(deadline=None)
@given(rollouts, st.integers(1, 9))
def test_parts_hold_every_roll_out_once(futures: list[list[Request]], most: int) -> None:
    """Beside the first of its roll-outs, which may be of any size, none holds more requests than are allowed."""
    parts = list(coming(futures).parts(most))
    assert [number for part in parts for number in part] == list(range(len(futures)))
    assert all(sum(len(futures[number]) for number in part[1:]) <= most for part in parts)


@settings(deadline=None)
@given(rollouts, st.floats(0, 30))
def test_turns_come_one_after_another_in_each_roll_out(futures: list[list[Request]], backlog: float) -> None:
    """A request's turn comes when it is there and everyone before it in its own roll-out has been worked on."""
    all_of_them, seconds = coming(futures), 0.01
    before, prompts = all_of_them.totals(all_of_them.prompt)
    assert prompts == pytest.approx([sum(prompt for _, prompt, _ in each) for each in futures])
    expected = []
    for each in futures:
        free = backlog
        for arrival, prompt, _ in each:
            expected.append(max(free, arrival))
            free = expected[-1] + prompt * seconds
    found = all_of_them.one_after_another(before * seconds, prompts * seconds, backlog)
    assert found == pytest.approx(expected, abs=1e-6)


@settings(deadline=None)
@given(st.floats(0, 500), st.sampled_from([60.0, 120.0, 300.0, 301.0]))
def test_every_time_has_its_cell(time: float, end: float) -> None:
    """A cell begins where the one before it ends; one more holds what comes later."""
    grid = Grid(end=end)
    assert grid.times[-1] == pytest.approx(end, abs=2.5)
    assert grid.cell(np.array([time]))[0] == np.searchsorted(grid.times, time, side="right")


def test_what_never_comes_lies_beyond_the_grid() -> None:
    """An infinite time is late."""
    assert Grid().cell(np.array([np.inf]))[0] == Grid().cells


@settings(deadline=None)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=70), st.floats(0, 1))
def test_quantiles_are_those_of_numpy(levels: list[float], share: float) -> None:
    """Of a demand that rises from cell to cell, at horizons within the grid and beyond it."""
    demand = np.cumsum(np.tile(np.array(levels)[:, None], 3), axis=1)
    futures = Futures(np.array([1.0, 2.0, 3.0]), demand, demand, np.full(len(levels), np.inf))
    found = futures.demand_at((1.0, 3.0, 99.0), (share, 0.5))
    assert np.array(found) == pytest.approx(np.quantile(demand[:, [0, 2, 2]], (share, 0.5), axis=0))
    assert futures.median_peak(2.0) == pytest.approx(np.median(demand[:, 1]))


def test_whole_lengths_are_drawn_as_those_beyond_nothing() -> None:
    """For requests that have yet to begin, a table of quantiles gives what residual lives at age 0 do."""
    sample, random = LengthSample(), np.random.default_rng(0)
    sample.add(random.lognormal(5.0, 1.0, 1000))
    uniform = random.random(50_000)
    for exponent in (1.0, 0.5):
        whole = sample.draw_whole(uniform, 1.0 / exponent, 400.0)
        beyond = sample.draw_beyond(np.zeros(1), uniform[:, None] ** (1.0 / exponent), 400.0)
        assert np.quantile(whole, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(beyond, [0.1, 0.5, 0.9]), rel=0.03)
        assert whole.max() <= 400.0


def test_each_roll_out_draws_from_its_own_memory() -> None:
    """The newest lengths alone, where a roll-out believes in no more of them."""
    sample = LengthSample()
    sample.add(np.arange(1.0, 101.0))
    drawn = sample.draw(np.random.default_rng(0).random(300), np.array([1.0, 5.0, 1e6]), np.array([50, 100, 150]))
    assert set(drawn[:50]) == {100.0}
    assert set(drawn[50:150]) == {96.0, 97.0, 98.0, 99.0, 100.0}
    assert drawn[150:].min() < 20
