"""The worked examples that every user knows."""

from typing import Any

import pytest

from exporter.kv.architecture import read_architecture
from exporter.kv.options import EngineOptions
from exporter.kv.sizing import held_blocks, size
from exporter.kv.weights import count_weights

GIB = 2**30


def _llama(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float16",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        **changes,
    }


LLAMA_3_8B = _llama()
LLAMA_3_70B = _llama(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64)
MHA_7B = _llama(intermediate_size=11008, num_key_value_heads=32, vocab_size=32000)


def _bytes(config: dict[str, Any], context: int, requests: int = 1, **flags: Any) -> float:
    """Bytes over all ranks that `requests` of `context` tokens hold."""
    options = EngineOptions(max_model_len=131072, **flags)
    pool = size(config, options, 10 * GIB)
    return requests * held_blocks(pool, options, context) * pool.bytes_per_block


def test_llama_3_8b_at_4096_tokens_and_32_requests_is_16_gib() -> None:
    """2 × 32 layers × 8 heads × 128 × 2 bytes = 128 KiB a token."""
    assert _bytes(LLAMA_3_8B, 4096, 32) == 16 * GIB


@pytest.mark.parametrize(("kv_heads", "gib"), [(8, 5), (64, 40)])
def test_llama_3_70b_at_4096_tokens_and_4_requests(kv_heads: int, gib: int) -> None:
    """Grouped-query attention divides the cache by eight."""
    assert _bytes({**LLAMA_3_70B, "num_key_value_heads": kv_heads}, 4096, 4) == gib * GIB


@pytest.mark.parametrize(("context", "requests"), [(4096, 32), (8192, 16), (32768, 4), (131072, 1)])
def test_16_gib_hold_half_as_many_requests_of_twice_the_length(context: int, requests: int) -> None:
    """16 GiB of cache for Llama-3 8B: the table of context length and concurrency."""
    options = EngineOptions(max_model_len=context)
    pool = size(LLAMA_3_8B, options, 16 * GIB)
    assert pool.max_concurrency == requests
    assert pool.kv_cache_size_tokens == 131072


def test_fp8_halves_the_cache() -> None:
    """One byte an element instead of two."""
    assert _bytes(LLAMA_3_8B, 4096, 32, kv_cache_dtype="fp8") == 8 * GIB


@pytest.mark.parametrize(("context", "gib"), [(4096, 2), (32768, 16), (131072, 64)])
def test_multi_head_7b_per_request(context: int, gib: int) -> None:
    """Without grouped queries a 7B model holds half a mebibyte a token, and eight requests eight times that."""
    assert _bytes(MHA_7B, context) == gib * GIB
    assert _bytes(MHA_7B, context, 8) == 8 * gib * GIB


@pytest.mark.parametrize(("kv_heads", "per_token"), [(8, 131072), (32, 512 * 1024)])
def test_bytes_per_token(kv_heads: int, per_token: int) -> None:
    """131,072 bytes a token for Llama-3 8B, 512 KiB with 32 KV heads."""
    pool = size({**LLAMA_3_8B, "num_key_value_heads": kv_heads}, EngineOptions(max_model_len=4096), GIB)
    assert pool.bytes_per_block == per_token * pool.block_size


def test_a_24_gb_card_with_16_gb_of_weights_holds_about_49000_tokens() -> None:
    """24 − 16 − 2 GB of overhead leave room for 12 requests of 4k, or 6 of 8k."""
    left = (24 - 16 - 2) * GIB
    four = size(LLAMA_3_8B, EngineOptions(max_model_len=4096), left)
    eight = size(LLAMA_3_8B, EngineOptions(max_model_len=8192), left)
    assert four.kv_cache_size_tokens == pytest.approx(49000, rel=0.01)
    assert int(four.max_concurrency) == 12
    assert int(eight.max_concurrency) == 6


def test_70b_weights_are_140_gb_at_fp16_and_35_gb_at_4_bits() -> None:
    """Two bytes a parameter, or half a byte and its scales."""
    options = EngineOptions(max_model_len=4096)
    assert count_weights(read_architecture(LLAMA_3_70B), options).bytes == pytest.approx(140e9, rel=0.01)
    quantised = {**LLAMA_3_70B, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    linear = count_weights(read_architecture(quantised), options).bytes - 2 * 2 * 128256 * 8192
    assert linear == pytest.approx(35e9, rel=0.03)


def test_weight_quantisation_never_changes_the_cache() -> None:
    """The cache of an AWQ checkpoint is as large as the original's."""
    quantised = {**LLAMA_3_8B, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    assert _bytes(quantised, 4096, 32) == 16 * GIB


def test_1280_gb_become_320_then_160_then_80() -> None:
    """8 of 32 KV heads quarter the cache; one byte halves that, half a byte halves it again (scales aside)."""
    many = _llama(num_key_value_heads=32)
    full = _bytes(many, 131072, 20)
    assert full == 1280 * GIB
    assert _bytes({**many, "num_key_value_heads": 8}, 131072, 20) == 320 * GIB
    scales = 20 * 131072 * 32 * 8 * 2 * 4
    eight = _bytes({**many, "num_key_value_heads": 8}, 131072, 20, kv_cache_dtype="int8_per_token_head")
    four = _bytes({**many, "num_key_value_heads": 8}, 131072, 20, kv_cache_dtype="int4_per_token_head")
    assert eight - scales == 160 * GIB
    assert four - scales == 80 * GIB


def test_deepseek_v2_against_67b() -> None:
    """(512 + 64) × 60 elements a token are 82.2 % fewer; at 6 bits against 16, the paper's 93.3 %."""
    mla = {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 60,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "vocab_size": 102400,
    }
    dense = _llama(hidden_size=8192, num_hidden_layers=95, num_attention_heads=64, num_key_value_heads=8)
    options = EngineOptions(max_model_len=4096)
    elements = [size(config, options, 100 * GIB).bytes_per_block / 16 / 2 for config in (mla, dense)]
    assert elements[0] == (512 + 64) * 60
    assert 1 - elements[0] / elements[1] == pytest.approx(0.822, abs=5e-4)
    assert 1 - elements[0] * 6 / (elements[1] * 16) == pytest.approx(0.933, abs=5e-4)
