"""Every release's page gives what that release can tell, and nothing else."""

import math
from pathlib import Path

import pytest

from exporter.reading import Histogram
from exporter.sources.page import PageParser
from tests.conftest import Golden
from tests.support.expositions import exposition
from tests.support.readings import engine_of
from tests.support.releases import MODEL, RELEASES, facts_table, page_of

DOC = Path(__file__).parents[2] / "docs" / "compatibility.md"
RECORDED = "vllm-0.32-one-engine-full.prom"
"""The newest release known is not rebuilt: it was recorded."""

ALWAYS = {
    "kv_usage",
    "running",
    "waiting",
    "preemptions",
    "prompt_tokens",
    "generation_tokens",
    "finished",
    "finished_by_reason",
    "first_tokens",
    "prompt_lengths",
    "generation_lengths",
    "cache",
}
V1 = ALWAYS | {"prefix_queries", "prefix_hits", "iteration_tokens", "max_tokens_params", "max_generation_lengths"}
BESIDE = {
    "0.6": ALWAYS | {"swapped", "cpu_kv_usage"},
    "0.8": V1,
    "0.10": V1,
    "0.11": V1,
    "0.16": V1 | {"sleep_state", "prefill_computed_tokens"},
    "0.20": V1 | {"sleep_state", "prefill_computed_tokens", "prompt_tokens_cached", "waiting_by_reason"},
}


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_tells_what_it_can(version: str) -> None:
    """The concepts found are exactly those the release shows; the rest is absent."""
    assert set(engine_of(page_of(version)).names) == BESIDE[version]


@pytest.mark.parametrize("version", RELEASES)
def test_the_common_core_reads_the_same(version: str) -> None:
    """Load, counters and lengths have one meaning whatever they were called."""
    engine = engine_of(page_of(version))
    assert (engine.model_name, engine.engine) == (MODEL, "0")
    assert (engine.running, engine.waiting) == (3.0, 3.0)
    assert (engine.preemptions, engine.prompt_tokens, engine.generation_tokens) == (40.0, 40.0, 40.0)
    assert engine.finished == 3.0
    assert engine.finished_by_reason == {"stop": 2.0, "length": 1.0}
    assert engine.prompt_lengths is not None
    assert engine.prompt_lengths.bounds[-1] == math.inf
    assert (engine.prompt_lengths.sum, engine.prompt_lengths.count) == (777.0, 3.0)
    assert engine.first_tokens == Histogram((), (), 777.0, 3.0)
    assert engine.cache is not None
    assert engine.cache.block_size == 16


@pytest.mark.parametrize(
    ("version", "usage", "name"),
    [
        ("0.6", 0.75, "vllm:gpu_cache_usage_perc"),
        ("0.8", 0.75, "vllm:gpu_cache_usage_perc"),
        ("0.10", 0.25, "vllm:kv_cache_usage_perc"),
        ("0.11", 0.25, "vllm:kv_cache_usage_perc"),
        ("0.16", 0.25, "vllm:kv_cache_usage_perc"),
        ("0.20", 0.25, "vllm:kv_cache_usage_perc"),
    ],
)
def test_usage_is_found_under_the_newest_name(version: str, usage: float, name: str) -> None:
    """Releases with one name are read by it, the one with both by the new one."""
    engine = engine_of(page_of(version))
    assert engine.kv_usage == usage
    assert engine.names["kv_usage"] == name


def test_v0_swaps() -> None:
    """0.6 tells its swapped requests and the use of its CPU cache, and no engine."""
    engine = engine_of(page_of("0.6"))
    assert (engine.swapped, engine.cpu_kv_usage) == (3.0, 0.25)
    assert engine.cache is not None
    assert (engine.cache.num_gpu_blocks, engine.cache.enable_prefix_caching) == (27000, False)
    assert engine.cache.labels["swap_space_bytes"] == "4294967296"


def test_early_v1_does_not_know_its_blocks() -> None:
    """0.8 wrote "None" for the blocks: the pool's size is unknown there."""
    cache = engine_of(page_of("0.8")).cache
    assert cache is not None
    assert cache.num_gpu_blocks is None


def test_the_sleeping_release_sleeps() -> None:
    """From 0.16 on the sleep state is told."""
    assert engine_of(page_of("0.16")).sleep_state == "weights_offloaded"
    assert engine_of(page_of("0.20")).waiting_by_reason == {"capacity": 2.0, "deferred": 1.0}


@pytest.mark.parametrize("version", RELEASES)
def test_no_line_of_any_release_is_malformed(version: str) -> None:
    """Every page is read without a complaint."""
    parser = PageParser()
    assert list(parser.parse([page_of(version).encode()]))
    assert parser.malformed == 0


def test_the_recorded_release_tells_what_the_newest_tells() -> None:
    """0.32 tells all that 0.20 does, how often each request was preempted, and the pool's size in tokens."""
    newest = engine_of(exposition(RECORDED))
    assert set(newest.names) == BESIDE["0.20"] | {"request_preemptions"}
    assert newest.cache is not None
    assert newest.cache.kv_cache_size_tokens == 8192


def test_the_docs_tell_which_release_tells_what(golden: Golden) -> None:
    """The table of docs/compatibility.md is that of the pages: made anew with --update-golden."""
    pages = {version: page_of(version) for version in RELEASES} | {"0.32": exposition(RECORDED)}
    table = facts_table({version: engine_of(page) for version, page in pages.items()})
    before, mark, rest = DOC.read_text().partition("<!-- which release tells what -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    assert mark
    assert end
    golden.check(DOC, before + mark + table + end + after)
