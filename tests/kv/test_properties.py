"""What holds for every model and every flag."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.kv.options import EngineOptions
from exporter.kv.sizing import held_blocks, request_demand, size
from tests.kv.truth import config

GIB = 2**30
FAMILIES = (
    "llama-3.1-8b",
    "gemma-3-4b-text",
    "gemma-4-text",
    "gpt-oss-20b",
    "deepseek-v3-tp8",
    "llama-4-scout-text-tp8",
    "qwen3-next-80b",
    "granite-4-hybrid",
    "jamba-1.5-mini",
    "mamba2-2.7b",
    "mistral-7b-v0.1",
)
CONFIGS = {name: config(name) for name in FAMILIES}
models = st.sampled_from(FAMILIES)
flags = st.builds(
    EngineOptions,
    max_model_len=st.integers(1024, 65536),
    kv_cache_dtype=st.sampled_from(["auto", "fp8"]),
    block_size=st.sampled_from([None, 16, 32, 64]),
    max_num_batched_tokens=st.integers(256, 16384),
    async_scheduling=st.booleans(),
)


@given(model=models, options=flags, context=st.integers(1, 60000), more=st.integers(0, 5000))
@settings(deadline=None, max_examples=30)
def test_demand_is_monotone_in_context(model: str, options: EngineOptions, context: int, more: int) -> None:
    """What the forecast takes a request to hold never shrinks as the context grows."""
    demand = request_demand(size(CONFIGS[model], options, 0), options)
    assert demand.blocks(context) <= demand.blocks(context + more)


@given(model=models, options=flags, context=st.integers(1, 60000))
@settings(deadline=None, max_examples=30)
def test_demand_bounds_what_the_scheduler_holds(model: str, options: EngineOptions, context: int) -> None:
    """The forecast's demand is at least what a decoding request holds, and at most one block a group more."""
    pool = size(CONFIGS[model], options, 0)
    held = held_blocks(pool, options, context)
    demand = request_demand(pool, options).blocks(context)
    if all(group.first.kind != "state" for group in pool.groups):
        assert held <= demand
    assert abs(demand - held) <= len(pool.groups) or any(group.first.chunk for group in pool.groups)


@given(model=models, options=flags, contexts=st.lists(st.integers(1, 30000), max_size=5))
@settings(deadline=None, max_examples=25)
def test_demand_is_additive_over_requests(model: str, options: EngineOptions, contexts: list[int]) -> None:
    """Requests share no block: the load holds the sum, and never less than its bytes over a page."""
    pool = size(CONFIGS[model], options, 0)
    demand = request_demand(pool, options)
    total = sum(demand.blocks(context) for context in contexts)
    assert total == sum(map(demand.blocks, reversed(contexts)))
    for group in pool.groups:
        if group.first.kind in ("full", "mla"):
            tokens = sum(contexts)
            assert total * group.first.block_size >= tokens


@given(model=st.sampled_from(("llama-3.1-8b", "gemma-3-4b-text", "gpt-oss-20b", "mistral-7b-v0.1")), options=flags)
@settings(deadline=None, max_examples=25)
def test_more_ranks_never_hold_fewer_tokens(model: str, options: EngineOptions) -> None:
    """Splitting the heads over twice the ranks leaves at least as many tokens in the same bytes per rank."""
    one = size(CONFIGS[model], options, 8 * GIB)
    two = size(CONFIGS[model], replace(options, tensor_parallel_size=2), 8 * GIB)
    assert two.kv_cache_size_tokens >= one.kv_cache_size_tokens


@given(model=models, options=flags, small=st.integers(0, 40), more=st.integers(0, 40))
@settings(deadline=None, max_examples=30)
def test_more_bytes_never_hold_fewer_blocks(model: str, options: EngineOptions, small: int, more: int) -> None:
    """Blocks are bytes over bytes per block, rounded down."""
    less = size(CONFIGS[model], options, small * GIB)
    full = size(CONFIGS[model], options, (small + more) * GIB)
    assert less.num_gpu_blocks <= full.num_gpu_blocks
    assert full.num_gpu_blocks * full.bytes_per_block <= (small + more) * GIB
    assert (full.num_gpu_blocks + 1) * full.bytes_per_block > (small + more) * GIB


@given(model=models, options=flags)
@settings(deadline=None, max_examples=30)
def test_all_groups_fit_the_block(model: str, options: EngineOptions) -> None:
    """Every group's pages fit into one block of the pool, and every layer is in exactly one group."""
    pool = size(CONFIGS[model], options, GIB)
    assert max(group.bytes_per_block for group in pool.groups) == pool.bytes_per_block
    names = [layer.name for group in pool.groups for layer in group.layers]
    assert len(names) == len(set(names))


@given(model=models, options=flags, stages=st.integers(2, 6))
@settings(deadline=None, max_examples=30)
def test_pipeline_stages_share_the_layers(model: str, options: EngineOptions, stages: int) -> None:
    """A stage holds no more than the whole model, and the stages together hold all of it."""
    whole = size(CONFIGS[model], options, GIB)
    split = size(CONFIGS[model], replace(options, pipeline_parallel_size=stages), GIB)
    assert split.bytes_per_block <= whole.bytes_per_block
    assert split.bytes_per_block * stages >= whole.bytes_per_block


@pytest.mark.parametrize("model", FAMILIES)
def test_async_scheduling_never_raises_capacity(model: str) -> None:
    """Twice the tokens in flight need at least as many blocks a request."""
    options = EngineOptions(max_model_len=32768)
    lazy: Any = size(CONFIGS[model], options, GIB)
    eager: Any = size(CONFIGS[model], replace(options, async_scheduling=True), GIB)
    assert sum(eager.blocks_per_request) >= sum(lazy.blocks_per_request)
