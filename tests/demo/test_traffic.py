"""The scenarios do what they say."""

import functools
import itertools
from pathlib import Path

import pytest

from exporter.demo.engine import DemoEngine, Step
from exporter.demo.traffic import SCENARIOS, scenario
from exporter.errors import InputError

USABLE = 2587
EARLY = 300.0


@functools.cache
def run(name: str, seed: int = 0) -> tuple[Step, ...]:
    """The first five minutes of a scenario."""
    return tuple(DemoEngine(arrivals=SCENARIOS[name].requests(seed)).steps(EARLY))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_seed_is_a_scenario_again(name: str) -> None:
    """The same seed gives the same requests in order of arrival, another one gives others."""
    first, again, other = (list(itertools.islice(SCENARIOS[name].requests(seed), 300)) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert [request.arrival for request in first] == sorted(request.arrival for request in first)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_says_what_to_watch_for(name: str) -> None:
    """Each is described in a sentence and says what to look at."""
    assert SCENARIOS[name].happens.endswith(".")
    assert SCENARIOS[name].watch


@pytest.mark.parametrize("seed", range(3))
def test_calm_is_calm(seed: int) -> None:
    """In calm traffic nothing is preempted and the pool is never near its end."""
    steps = run("calm", seed)
    assert not any(step.preempted for step in steps)
    assert 0.2 < sum(step.used_blocks for step in steps) / len(steps) / USABLE < 0.5
    assert max(step.used_blocks for step in steps) < 0.85 * USABLE


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "calm"])
def test_the_others_exhaust_the_pool(name: str) -> None:
    """Every other scenario preempts within five minutes, and none before its trouble begins at second 25."""
    preempting = [step.end for step in run(name) if step.preempted]
    assert preempting
    assert preempting[0] > 25


def test_a_burst_is_many_requests_at_once() -> None:
    """In the burst the number of live requests at least doubles within twenty seconds."""
    steps = [step for step in run("burst") if step.end < 65]
    before = max(step.running + step.waiting for step in steps if step.end < 45)
    after = max(step.running + step.waiting for step in steps)
    assert after > 2 * before


def test_long_contexts_fill_the_pool_with_fewer_requests() -> None:
    """A pool full of long contexts runs fewer than half as many requests as one full of chats."""
    long, chats = (
        [step.running for step in run(name) if step.used_blocks > 0.95 * USABLE]
        for name in ("long-context", "overload")
    )
    assert sum(long) / len(long) < 0.5 * sum(chats) / len(chats)


def test_overload_never_ends() -> None:
    """Under overload the queue is longer at the end than half way."""
    steps = run("overload")
    half = next(step for step in steps if step.end > EARLY / 2)
    assert steps[-1].waiting > half.waiting > 0


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    """A wrong scenario is refused in one line that names the flag, the value and the choice."""
    with pytest.raises(InputError, match=r"--scenario 'bust': must be one of calm, .*burst") as refusal:
        scenario("bust")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_documentation_tells_the_same(name: str) -> None:
    """`docs/demo.md` describes the scenario in the words of the command."""
    one = SCENARIOS[name]
    text = (Path(__file__).parents[2] / "docs" / "demo.md").read_text()
    assert f"| `{name}` | {one.happens} | {one.watch} |" in text
