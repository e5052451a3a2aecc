"""The budget follows vLLM's meaning of utilisation, version by version, and keeps estimates apart from facts."""

from dataclasses import replace
from typing import Any

import pytest

from exporter.kv.architecture import read_architecture
from exporter.kv.budget import GIB, Overrides, default_limits, estimate_budget
from exporter.kv.options import EngineOptions
from exporter.kv.quantization import kv_cache_dtype_hint, read_quantization
from exporter.kv.weights import count_weights
from tests.kv.truth import config

OPTIONS = EngineOptions(max_model_len=8192, max_num_batched_tokens=8192)


def _budget(model: str = "llama-3.1-8b", **changes: Any) -> Any:
    architecture = read_architecture(config(model))
    asked: dict[str, Any] = {"total": 80 * GIB, "utilization": 0.9, "max_num_seqs": 1024, **changes}
    return estimate_budget(architecture, OPTIONS, count_weights(architecture, OPTIONS), **asked)


def test_kv_is_what_the_other_terms_leave() -> None:
    """Utilisation × total − weights − activations − outside PyTorch − graphs."""
    known = Overrides(15 * GIB, 5 * GIB, GIB, GIB)
    assert _budget(overrides=known).kv == 72 * GIB - 22 * GIB
    assert _budget(overrides=known, version=(0, 20)).kv == 72 * GIB - 21 * GIB


@pytest.mark.parametrize(
    ("model", "logged"), [("llama-3.1-8b", 4.76), ("qwen3-8b", 5.56), ("gpt-oss-20b", 7.38), ("qwen3-32b-tp2", 5.64)]
)
def test_activations_peak_in_the_sampler(model: str, logged: float) -> None:
    """With 1,024 sequences the logged peaks follow the vocabulary, not the size of the model."""
    assert _budget(model).activations.bytes / GIB == pytest.approx(logged, rel=0.03)


def test_activations_grow_with_batched_tokens_where_layers_are_wide() -> None:
    """Few sequences and many tokens: then the widest layer decides."""
    architecture = read_architecture(config("llama-3.1-8b"))
    weights = count_weights(architecture, OPTIONS)
    small, large = (
        estimate_budget(
            architecture,
            replace(OPTIONS, max_num_batched_tokens=tokens),
            weights,
            total=24 * GIB,
            max_num_seqs=8,
        ).activations.bytes
        for tokens in (2048, 20000)
    )
    assert small < large
    assert large / GIB == pytest.approx(2.07, rel=0.15)


def test_eager_has_no_graphs() -> None:
    """Nothing is captured, so nothing is reserved."""
    assert _budget(eager=True).cuda_graphs.bytes == 0
    assert _budget(eager=True).kv > _budget().kv


def test_graphs_are_no_matter_of_utilisation() -> None:
    """A lower utilisation shrinks the cache and leaves the graphs as large as they are."""
    low, high = _budget(utilization=0.8), _budget(utilization=0.93)
    assert low.cuda_graphs == high.cuda_graphs
    assert high.kv - low.kv == pytest.approx(0.13 * 80 * GIB, abs=2)


def test_a_card_that_is_too_small_is_in_deficit() -> None:
    """The deficit is a number of bytes, not zero."""
    assert _budget("llama-3.1-70b-tp4").kv < -50 * GIB


def test_every_estimate_lies_in_its_range() -> None:
    """Low, value and high are in order, and the range of the cache spans its estimate."""
    budget = _budget()
    for term in (budget.weights, budget.activations, budget.non_torch, budget.cuda_graphs):
        assert term.low <= term.bytes <= term.high
    assert budget.kv_range[0] < budget.kv < budget.kv_range[1]


@pytest.mark.parametrize(
    ("gpu", "gib", "limits"),
    [("H100", 79, (8192, 1024)), ("A100-80GB", 79, (2048, 256)), ("B200", 178, (16384, 1024)), ("L4", 22, (2048, 256))],
)
def test_default_limits_follow_the_card(gpu: str, gib: int, limits: tuple[int, int]) -> None:
    """A large card batches more, an A100 does not."""
    assert default_limits(gpu, gib * GIB) == limits


def _quantised(**settings: Any) -> Any:
    return read_architecture({**config("llama-3.1-8b"), "quantization_config": settings})


@pytest.mark.parametrize(
    ("settings", "bits"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4.15),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, 8.19),
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8.002),
        ({"quant_method": "mxfp4"}, None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.125),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"0": {"weights": {"num_bits": 8, "type": "int"}}}},
            8,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"0": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            4.5,
        ),
    ],
)
def test_stored_bits_of_quantised_weights(settings: dict[str, Any], bits: float | None) -> None:
    """Scales and zero points are counted; embeddings and head stay as they are."""
    quantised, plain = (
        count_weights(a, OPTIONS) for a in (_quantised(**settings), read_architecture(config("llama-3.1-8b")))
    )
    kept = 2 * 128256 * 4096 * 2
    assert quantised.quantization is not None
    if bits is None:
        assert quantised.bytes == plain.bytes
    else:
        assert (quantised.bytes - kept) / (plain.bytes - kept) * 16 == pytest.approx(bits, rel=0.005)


def test_unknown_quantisation_changes_nothing() -> None:
    """What is not understood is counted as if it were not there."""
    assert read_quantization(_quantised(quant_method="brand_new").facts).name is None


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}, "fp8"),
        ({"quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8"),
        ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "awq"}, None),
    ],
)
def test_a_checkpoint_may_ask_for_a_cache_dtype(settings: dict[str, Any], hint: str | None) -> None:
    """Only an explicit scheme does; the quantisation of weights does not."""
    assert kv_cache_dtype_hint(_quantised(**settings).facts) == hint
