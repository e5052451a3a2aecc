"""What fuzzing found: inputs that once broke a promise, and the fewest that reach every line that it reached."""

from random import Random

import pytest

from bench.fuzz.engine import made
from bench.fuzz.target import CORPUS, MODULES, target


@pytest.mark.parametrize("name", MODULES)
def test_every_input_of_the_corpus_keeps_the_promises(name: str) -> None:
    """Each committed input is read, or refused with an error of ours that is fit to be shown."""
    aim = target(name)
    assert aim.corpus, f"no corpus in {CORPUS / name}"
    for path in aim.corpus:
        aim.holds(path.read_bytes())


@pytest.mark.parametrize("name", MODULES)
def test_seeds_and_what_chance_makes_of_them_keep_the_promises(name: str) -> None:
    """The fuzzer's own machinery works: its seeds hold, and so do forty inputs made of them."""
    aim = target(name)
    chance = Random(7)
    seeds = aim.seeds()
    for _ in range(40):
        data = chance.choice(seeds)
        aim.holds(data)
        aim.holds(made(aim, data, chance))
