"""The small habits of each model family that its weights depend on: gates, biases, norms, learned positions."""

from dataclasses import dataclass
from typing import Literal

from exporter.kv.facts import Facts

_UNGATED = {"apertus", "arcee", "bloom", "codegen", "falcon", "gpt-sw3", "gpt2", "gpt_bigcode", "gpt_neox", "gptj"}
_UNGATED |= {"jais2", "mpt", "nemotron", "nemotron_h", "nemotron_h_puzzle", "opt", "phi", "starcoder2"}
_LAYER_NORM = {
    "bloom",
    "codegen",
    "falcon",
    "gpt-sw3",
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gptj",
    "mpt",
    "nemotron",
    "opt",
}
_LAYER_NORM |= {"jais2", "orion", "phi", "phimoe", "stablelm", "starcoder2"}
_ONE_NORM = {"cohere", "cohere2", "cohere2_moe", "falcon", "gptj", "phi"}
_FOUR_NORMS = {
    "afmoe",
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "gemma4_text",
    "glm4",
    "glm_ocr_text",
    "longcat_flash",
    "rnj1",
}
_STATES_ONLY = {"falcon_mamba", "mamba", "mamba2", "nemotron_h", "nemotron_h_puzzle", "zamba2"}
_HEAD_QK_NORM = {"afmoe", "apertus", "exaone4", "exaone_moe", "gemma3_text", "gemma3n_text", "gemma4_text"}
_HEAD_QK_NORM |= {"hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3", "lfm2", "lfm2_moe", "mellum", "minimax_m3_vl_text"}
_HEAD_QK_NORM |= {"qwen3", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next", "qwen3_vl_moe_text"}
_HEAD_QK_NORM |= {"qwen3_vl_text", "rnj1"}
_WIDTH_QK_NORM = {"flex_olmo", "minimax_m2", "olmo2", "olmo3", "olmo_hybrid", "olmoe"}
_QKV_BIAS = {"bloom", "gpt-sw3", "gpt2", "gpt_bigcode", "mimo", "opt", "phi", "qwen2", "qwen2_moe"}
_QKV_BIAS |= {"qwen2_5_vl_text", "qwen2_vl_text"}
_ALL_BIAS = {"bloom", "gpt-sw3", "gpt2", "gpt_bigcode", "gpt_neox", "jais2", "opt", "phi"}
_OUT_BIAS_WITH_QKV = {"gpt_oss", "llama", "mistral"}


@dataclass(frozen=True, slots=True)
class Traits:
    """Habits of one family. Norm counts are per layer and in units of the hidden size."""

    gated: bool = True
    feedforward: bool = True
    dense_beside_experts: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    expert_bias: bool = False
    expert_correction: bool = False
    router_float32: bool = False
    sinks: bool = False
    norms: int = 2
    norm_width: int = 1
    """1 for a weight, 2 for a weight and a bias, 0 for norms without parameters."""
    final_norms: int = 1
    qk_norm: Literal["head", "width"] | None = None
    positions: int = 0
    tied: bool = False
    head_bias: bool = False


def traits_of(facts: Facts) -> Traits:
    """The habits of the model, from its type and what the file states."""
    kind = facts.model_type
    use_bias = bool(facts.get("use_bias", default=False))
    attention_bias = any(
        facts.get(n, default=False) for n in ("attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias")
    )
    return Traits(
        gated=kind not in _UNGATED,
        feedforward=kind not in _STATES_ONLY,
        dense_beside_experts=kind == "gemma4_text",
        qkv_bias=bool(attention_bias or use_bias or kind in _QKV_BIAS or (kind == "falcon" and facts.get("bias"))),
        out_bias=bool(kind in _ALL_BIAS or use_bias or (kind in _OUT_BIAS_WITH_QKV and facts.get("attention_bias"))),
        mlp_bias=bool(kind in _ALL_BIAS or kind == "gptj" or use_bias or facts.get("mlp_bias", default=False)),
        expert_bias=kind == "gpt_oss",
        router_float32=kind in ("ernie4_5_moe", "ernie4_5_vl_moe_text", "glm4_moe", "longcat_flash"),
        expert_correction=kind == "lfm2_moe",
        sinks=kind == "gpt_oss",
        norms=1 if kind in _ONE_NORM | _STATES_ONLY else 4 if kind in _FOUR_NORMS else 2,
        norm_width=0 if kind == "olmo" else 2 if kind in _LAYER_NORM else 1,
        qk_norm=_qk_norm(facts),
        final_norms=0 if facts.get("do_layer_norm_before") is False else 1,
        positions=_positions(facts),
        tied=bool(facts.get("tie_word_embeddings", "tie_embedding", default=False)),
        head_bias=kind in ("gptj", "phimoe"),
    )


def _qk_norm(facts: Facts) -> Literal["head", "width"] | None:
    kind = facts.model_type
    if kind in _WIDTH_QK_NORM:
        return "width"
    stated = bool(facts.get("use_qk_norm", "qk_layernorm", default=False)) and kind != "llama4_text"
    return "head" if kind in _HEAD_QK_NORM or stated else None


def _positions(facts: Facts) -> int:
    if facts.model_type in ("gpt2", "gpt-sw3", "gpt_bigcode"):
        return facts.integer("max_position_embeddings", "n_positions", default=0)
    if facts.model_type == "opt":
        return facts.integer("max_position_embeddings") + 2
    return 0
