"""What the benches hold monitors against: the page that goes on, and the judgement of what is said of it."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.peers.rivals import Said
from bench.peers.trial import capacity_verdict, kv_verdict, rate_verdict
from bench.served import CAPACITY_TOKENS, LOADS, GrowingPage
from bench.watched import write_between

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(page: bytes) -> Series:
    families = text_string_to_metric_families(page.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


@pytest.mark.parametrize("load", LOADS)
def test_the_growing_page_is_one_that_a_server_could_show(load: str) -> None:
    """Series stay, counters never fall, buckets rise with their bounds and the last one is the count."""
    page = GrowingPage(3, load)
    before, after = series(page.at(7)), series(page.at(8))
    assert before.keys() == after.keys()
    for (name, labels), value in after.items():
        if name.endswith(("_total", "_count", "_sum", "_bucket")):
            assert value >= before[name, labels], name
        if name.startswith("vllm:") and dict(labels).get("le") == "+Inf":
            rest = frozenset(label for label in labels if label[0] != "le")
            assert value == after[name.removesuffix("_bucket") + "_count", rest], name


def test_apart_is_one_full_and_preempting_engine_beside_an_idle_one() -> None:
    """What the judgements rest on stands on the page: usage, preemptions a second, tokens of the pool."""
    page = GrowingPage(2, "apart")
    before, after = series(page.at(10)), series(page.at(15))

    def of(shown: Series, name: str, engine: str) -> float:
        return shown[name, frozenset({("engine", engine), ("model_name", "tiny")})]

    assert [of(after, "vllm:kv_cache_usage_perc", engine) for engine in "01"] == [0.98, 0.0]
    name = "vllm:num_preemptions_total"
    assert [of(after, name, engine) - of(before, name, engine) for engine in "01"] == [10.0, 0.0]
    pools = [dict(labels)["kv_cache_size_tokens"] for name, labels in after if name == "vllm:cache_config_info"]
    assert pools == [str(CAPACITY_TOKENS)] * 2


def test_a_page_can_be_as_large_as_asked() -> None:
    """Padding brings it to the size, and adds no series of vLLM's."""
    plain, padded = GrowingPage(1, "moving").at(3), GrowingPage(1, "moving", 200_000).at(3)
    assert 190_000 < len(padded) < 210_000
    assert [line for line in padded.splitlines() if b"vllm:" in line] == [
        line for line in plain.splitlines() if b"vllm:" in line
    ]


@pytest.mark.parametrize(
    ("said", "verdicts"),
    [
        (Said({"0": 0.98, "1": 0.0}, 8192, 2.05), ("right: 98 % and 0 %", "right: 8,192", "right: 2.0")),
        (Said({"0": 0.98, "1": 0.98}, 16384, 0.6), ("wrong: 98 % and 98 %", "wrong: 16,384", "wrong: 0.6")),
        (Said({"": 0.49}), ("one number for both: 49 %", "not offered", "none")),
        (Said(), ("not offered", "not offered", "none")),
    ],
)
def test_what_is_said_is_held_against_the_page(said: Said, verdicts: tuple[str, str, str]) -> None:
    """Two engines told apart and the true numbers are right; others are wrong; one number for two is called that."""
    assert (kv_verdict(said), capacity_verdict(said), rate_verdict(said, "none")) == verdicts


def test_the_table_of_the_readme_is_replaced_in_its_place(tmp_path: Path) -> None:
    """What stands before and after stays, a second time changes nothing, and a file without the marks is refused."""
    readme = tmp_path / "README.md"
    readme.write_text("a\n<b>\nold\n<e>\nc\n")
    for _ in range(2):
        write_between("<b>", "<e>", "| new |", readme)
        assert readme.read_text() == "a\n<b>\n\n| new |\n\n<e>\nc\n"
    with pytest.raises(ValueError, match="has no <x>"):
        write_between("<x>", "<e>", "", readme)
