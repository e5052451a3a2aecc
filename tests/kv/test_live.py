"""A running engine's own figures and the arithmetic are compared, and a difference names its cause."""

from typing import Any

import pytest

from exporter.errors import InputError
from exporter.kv.live import live_arithmetic
from exporter.reading import CacheConfig
from tests.kv.truth import cases, config


def _page(case: dict[str, Any], **changes: Any) -> CacheConfig:
    expected = case["expected"]
    stated: dict[str, Any] = {
        "block_size": expected["block_size"],
        "num_gpu_blocks": expected["num_gpu_blocks"],
        "kv_cache_size_tokens": expected["kv_cache_size_tokens"],
        "kv_cache_max_concurrency": expected["max_concurrency"],
        "cache_dtype": case.get("kv_cache_dtype", "auto"),
    }
    return CacheConfig(**{**stated, **changes})


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in cases()[:39]])
def test_the_reference_calibrates_to_one(case: dict[str, Any]) -> None:
    """An engine that is what its config says has a ratio of 1, and no cause is named."""
    ranks = case.get("tensor_parallel_size", 1)
    live = live_arithmetic(case["config"], _page(case), tensor_parallel_size=ranks)
    assert live.calibration_ratio == pytest.approx(1, abs=1e-4)
    assert live.cause is None
    assert live.bytes_per_block == case["expected"]["bytes_per_block"]
    assert live.usable_blocks == case["expected"]["num_gpu_blocks"] - 1


def _case(case_id: str) -> dict[str, Any]:
    return next(case for case in cases() if case["id"] == case_id)


def test_tokens_times_eight_is_decode_context_parallelism() -> None:
    """An engine that counts eight times our tokens splits each sequence."""
    case = _case("deepseek-v3-tp8")
    tokens = case["expected"]["kv_cache_size_tokens"] * 8
    concurrency = case["expected"]["max_concurrency"] * 8
    live = live_arithmetic(
        case["config"],
        _page(case, kv_cache_size_tokens=tokens, kv_cache_max_concurrency=concurrency),
        max_model_len=case["max_model_len"],
    )
    assert live.calibration_ratio == pytest.approx(8)
    assert live.cause is not None
    assert "decode-context" in live.cause


def test_a_misread_config_is_outside_the_tolerance() -> None:
    """Another model's config does not calibrate."""
    live = live_arithmetic(config("gemma-3-4b-text"), _page(_case("llama-3.1-8b")), max_model_len=8192)
    assert live.calibration_ratio is not None
    assert not 0.98 <= live.calibration_ratio <= 1.02
    assert live.cause is not None


def test_batched_tokens_are_found_from_the_engines_own_figures() -> None:
    """What the page does not tell of a windowed model follows from its concurrency."""
    case = _case("mistral-7b-v0.1")
    per_request = -(-(4095 + 2 * 8192) // 16) + 1
    concurrency = case["expected"]["num_gpu_blocks"] / per_request
    page = _page(
        case,
        kv_cache_max_concurrency=concurrency,
        kv_cache_size_tokens=int(concurrency * case["max_model_len"]),
    )
    live = live_arithmetic(case["config"], page)
    assert live.calibration_ratio == pytest.approx(1, abs=1e-4)
    assert live.blocks_per_request == per_request


def test_without_the_engines_figures_there_is_no_ratio() -> None:
    """Absent is not zero: what a request holds is known, the pool is not."""
    live = live_arithmetic(config("llama-3.1-8b"), CacheConfig())
    assert (live.calibration_ratio, live.usable_blocks, live.capacity_tokens, live.cause) == (None, None, None, None)
    assert live.demand.blocks(17) == 2


def test_an_unknown_architecture_is_said_to_be_estimated() -> None:
    """The reason travels with the figures."""
    unknown = {**config("llama-3.1-8b"), "model_type": "brand_new"}
    assert live_arithmetic(unknown, CacheConfig()).estimated is not None


@pytest.mark.parametrize(
    "broken", [{"num_hidden_layers": 1e400}, {"layer_types": [1]}, {"num_key_value_heads": 0}, {"hidden_size": "wide"}]
)
def test_a_broken_config_is_one_kind_of_error(broken: dict[str, Any]) -> None:
    """Whatever is wrong in a config.json, a tick sees an InputError and nothing else."""
    with pytest.raises(InputError):
        live_arithmetic({**config("llama-3.1-8b"), "head_dim": None, **broken}, CacheConfig())


def test_twice_the_ranks_hold_more_than_twice() -> None:
    """Each rank has half the heads and is rid of half the weights, which become blocks as well."""
    case = _case("llama-3.1-8b")
    live = live_arithmetic(case["config"], _page(case), max_model_len=case["max_model_len"])
    assert live.weight_bytes is not None
    assert live.usable_blocks is not None
    assert live.doubled_gain is not None
    pool = (live.usable_blocks + 1) * live.bytes_per_block
    assert live.doubled_gain == pytest.approx(2 * (pool + live.weight_bytes / 2) / pool, rel=1e-3)
