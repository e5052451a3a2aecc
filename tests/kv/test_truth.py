"""The arithmetic equals vLLM's own, to the block."""

from typing import Any

import pytest

from exporter.kv.architecture import read_architecture
from exporter.kv.layers import SPEC_NAMES
from exporter.kv.sizing import held_blocks, size_architecture
from exporter.kv.weights import count_weights
from tests.kv.truth import cases, options

CASES = [pytest.param(case, id=case["id"]) for case in cases()]
WEIGHED = [pytest.param(case, id=case["id"]) for case in cases() if "weight_bytes_per_rank" in case["expected"]]


@pytest.mark.parametrize("case", CASES)
def test_pool_is_vllms_to_the_block(case: dict[str, Any]) -> None:
    """Blocks, bytes, tokens, concurrency and groups are those that vLLM computes."""
    expected = case["expected"]
    pool = size_architecture(read_architecture(case["config"]), options(case), case["available_bytes"])
    assert pool.num_gpu_blocks == expected["num_gpu_blocks"]
    assert pool.bytes_per_block == expected["bytes_per_block"]
    assert pool.block_size == expected["block_size"]
    assert pool.kv_cache_size_tokens == expected["kv_cache_size_tokens"]
    assert pool.max_concurrency == pytest.approx(expected["max_concurrency"], abs=1e-9)
    assert list(pool.blocks_per_request) == expected["blocks_per_request_at_max_model_len"]
    assert sum(len(group.layers) for group in pool.groups) == expected["kv_layers"]
    assert [(SPEC_NAMES[g.first.kind], len(g.layers), g.first.block_size) for g in pool.groups] == [
        (group["kind"], group["layers"], group["block_size"]) for group in expected["groups"]
    ]


@pytest.mark.parametrize("case", CASES)
def test_a_request_holds_what_the_scheduler_gives_it(case: dict[str, Any]) -> None:
    """At every listed context, one request holds as many blocks as under vLLM's scheduler."""
    flags = options(case)
    pool = size_architecture(read_architecture(case["config"]), flags, case["available_bytes"])
    held = {context: held_blocks(pool, flags, int(context)) for context in case["expected"]["blocks_held_at_context"]}
    assert held == case["expected"]["blocks_held_at_context"]


@pytest.mark.parametrize("case", WEIGHED)
def test_weights_are_within_half_a_percent(case: dict[str, Any]) -> None:
    """Weights of a rank are those of vLLM's modules, within 0.5 %."""
    weights = count_weights(read_architecture(case["config"]), options(case))
    assert weights.parameters == pytest.approx(case["expected"]["weight_params_per_rank"], rel=0.005)
    assert weights.bytes == pytest.approx(case["expected"]["weight_bytes_per_rank"], rel=0.005)


def test_the_given_cases_have_exact_weights() -> None:
    """Of the cases that came with the reference, every one has its weights to the byte."""
    wrong = [
        case["id"]
        for case in cases()[:39]
        if "weight_bytes_per_rank" in case["expected"]
        and count_weights(read_architecture(case["config"]), options(case)).bytes
        != case["expected"]["weight_bytes_per_rank"]
    ]
    assert wrong == []
