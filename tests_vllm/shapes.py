"""Tiny models whose layers keep what those of well-known ones keep: windows, latents, states beside full attention."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests_vllm.tiny import LLAMA


def every(count: int, nth: int, other: str) -> list[str]:
    """Layer types: full attention on every nth layer, `other` on the rest."""
    return ["full_attention" if index % nth == nth - 1 else other for index in range(count)]


@dataclass(frozen=True, slots=True)
class Shape:
    """A config.json, flags that it needs, and, where a CPU's kernels do not serve it, what they say instead."""

    config: Mapping[str, Any]
    flags: tuple[str, ...] = ()
    refusal: str = ""


def of(architecture: str, model_type: str, layers: int, **keys: Any) -> dict[str, Any]:
    """A config.json: what the tiny Llama has, and what this model has of its own."""
    return {**LLAMA, "architectures": [architecture], "model_type": model_type, "num_hidden_layers": layers, **keys}


def mla_block_size() -> str:
    """Of the two kernels for MLA, that for CPUs with AMX takes multiples of 32 tokens, the other 16 alone."""
    return "32" if "amx_tile" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace") else "16"


_LINEAR = {
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "partial_rotary_factor": 0.25,
}
_MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 32,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
    "mamba_chunk_size": 256,
}
_GEMMA = {"query_pre_attn_scalar": 32, "hidden_activation": "gelu_pytorch_tanh", "hidden_act": None}
_MLA = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_key_value_heads": 4,
    "head_dim": None,
    "moe_intermediate_size": 64,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
}

SHAPES: Mapping[str, Shape] = {
    "Llama": Shape(LLAMA),
    "Mistral (windows only)": Shape(of("MistralForCausalLM", "mistral", 2, sliding_window=256)),
    "Gemma-3": Shape(
        of(
            "Gemma3ForCausalLM",
            "gemma3_text",
            6,
            sliding_window=256,
            layer_types=every(6, 6, "sliding_attention"),
            rope_local_base_freq=10000.0,
            **_GEMMA,
        )
    ),
    "gpt-oss": Shape(
        of(
            "GptOssForCausalLM",
            "gpt_oss",
            4,
            sliding_window=128,
            layer_types=["sliding_attention", "full_attention"] * 2,
            num_local_experts=4,
            num_experts_per_tok=2,
            swiglu_limit=7.0,
            attention_bias=True,
        )
    ),
    "DeepSeek-V2": Shape(
        of("DeepseekV2ForCausalLM", "deepseek_v2", 2, q_lora_rank=64, first_k_dense_replace=2, **_MLA),
        flags=("--block-size", mla_block_size()),
    ),
    "Qwen3-Next": Shape(
        of(
            "Qwen3NextForCausalLM",
            "qwen3_next",
            4,
            layer_types=every(4, 4, "linear_attention"),
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            shared_expert_intermediate_size=64,
            decoder_sparse_step=1,
            norm_topk_prob=True,
            mlp_only_layers=[],
            **_LINEAR,
        )
    ),
    "Granite-4 (Mamba2 hybrid)": Shape(
        of(
            "GraniteMoeHybridForCausalLM",
            "granitemoehybrid",
            4,
            layer_types=["mamba", "mamba", "mamba", "attention"],
            mamba_conv_bias=True,
            mamba_proj_bias=False,
            num_local_experts=0,
            num_experts_per_tok=0,
            shared_intermediate_size=256,
            embedding_multiplier=1.0,
            logits_scaling=1.0,
            residual_multiplier=1.0,
            attention_multiplier=0.17,
            position_embedding_type="nope",
            **_MAMBA2,
        ),
        refusal="index 1 is out of bounds for dimension 0 with size 1",
    ),
    "Jamba (Mamba hybrid)": Shape(
        of(
            "JambaForCausalLM",
            "jamba",
            4,
            attn_layer_period=4,
            attn_layer_offset=3,
            expert_layer_period=2,
            expert_layer_offset=1,
            num_experts=1,
            num_experts_per_tok=1,
            mamba_d_state=16,
            mamba_d_conv=4,
            mamba_expand=2,
            mamba_dt_rank=8,
        ),
        refusal="Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
}
"""The groups are those of the models named. With a `refusal`, the kernels of some CPUs fail at the first request."""
