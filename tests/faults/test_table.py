"""The table of faults is whole, and says what the tests show."""

import ast
from functools import cache
from pathlib import Path

import trustme

from tests.faults.servers import Names, troubles
from tests.faults.table import Pair, read

ROOT = Path(__file__).parents[2]
TABLE = read()
SPELLED = {
    "hangs": "hangs mid-body",
    "bomb": "gzip bomb",
    "type": "wrong content type",
    "redirects": "redirect loop",
    "tls": "TLS expired",
    "dns": "DNS gone",
}


@cache
def functions_of(file: str) -> set[str]:
    """The tests of a file."""
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_source_is_held_against_every_fault() -> None:
    """No pair is left out and none is there twice."""
    pairs = [(pair.source, pair.fault) for pair in TABLE.pairs]
    assert sorted(pairs) == sorted((source, fault) for source in TABLE.sources for fault in TABLE.faults)


def test_every_pair_is_proven_or_does_not_exist() -> None:
    """What can happen names the test that makes it happen; what cannot says why."""
    for pair in TABLE.pairs:
        if pair.no:
            assert not pair.proof, pair
            continue
        assert pair.state, pair
        assert pair.series, pair
        assert pair.recovery, pair
        file, _, test = pair.proof.partition("::")
        assert test in functions_of(file), pair


def test_the_reasons_are_those_the_servers_give() -> None:
    """What the table says of vLLM's page is what sixteen servers are held against."""
    given = {name: trouble.reason for name, trouble in troubles(Names(), trustme.CA()).items()}
    told: dict[str, Pair] = {SPELLED.get(pair.fault, pair.fault): pair for pair in TABLE.pairs if pair.source == "vllm"}
    common = given.keys() & told.keys()
    assert len(common) >= 11
    assert {name: told[name].reason for name in common} == {name: given[name] for name in common}
