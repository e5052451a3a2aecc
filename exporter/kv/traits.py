"""The small habits of each model family that its weights depend on: gates, biases, norms, learned positions."""

from dataclasses import dataclass
from typing import Literal

from exporter.kv.facts import Facts

_UNGATED = frozenset(
    "apertus arcee bloom codegen falcon gpt2 gpt_bigcode gpt_neox gptj mpt nemotron nemotron_h opt phi starcoder2".split()
)
_LAYER_NORM = frozenset(
    "bloom codegen falcon gpt2 gpt_bigcode gpt_neox gptj mpt nemotron opt orion phi phimoe stablelm starcoder2".split()
)
_ONE_NORM = frozenset("cohere cohere2 falcon gptj phi".split())
_FOUR_NORMS = frozenset(
    "afmoe gemma2 gemma3_text gemma3n_text gemma4_text glm4 glm_ocr_text openpangu rnj1 seed vaultgemma_never".split()
)
_HEAD_QK_NORM = frozenset(
    "afmoe apertus cohere2_moe exaone4 exaone_moe gemma3_text gemma3n_text gemma4_text hunyuan_v1_dense hunyuan_v1_moe "
    "hy_v3 lfm2 lfm2_moe mellum minimax_m3_vl_text qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next "
    "qwen3_vl_moe_text qwen3_vl_text rnj1".split()
)
_WIDTH_QK_NORM = frozenset("minimax_m2 olmo2 olmo3 olmo_hybrid olmoe flex_olmo".split())
_QKV_BIAS = frozenset("bloom gpt2 gpt_bigcode mimo opt phi qwen2 qwen2_moe qwen2_vl_text qwen2_5_vl_text".split())
_ALL_BIAS = frozenset("bloom gpt2 gpt_bigcode opt phi".split())


@dataclass(frozen=True, slots=True)
class Traits:
    """Habits of one family. Norm counts are per layer and in units of the hidden size."""

    gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    norms: int = 2
    norm_width: int = 1
    """1 for a weight, 2 for a weight and a bias, 0 for norms without parameters."""
    qk_norm: Literal["head", "width"] | None = None
    positions: int = 0
    tied: bool = False
    head_bias: bool = False


def traits_of(facts: Facts) -> Traits:
    """The habits of the model, from its type and what the file states."""
    kind = facts.model_type
    qkv_bias = bool(
        facts.get("attention_bias", default=False)
        or facts.get("qkv_bias", default=False)
        or facts.get("use_qkv_bias", default=False)
        or facts.get("add_qkv_bias", default=False)
        or facts.get("use_bias", default=False)
        or (kind == "falcon" and facts.get("bias", default=False))
        or kind in _QKV_BIAS
    )
    out_bias = bool(
        kind in _ALL_BIAS
        or facts.get("use_bias", default=False)
        or (kind in ("llama", "gpt_oss", "mistral") and facts.get("attention_bias", default=False))
    )
    mlp_bias = bool(
        kind in _ALL_BIAS
        or facts.get("mlp_bias", default=False)
        or facts.get("use_bias", default=False)
        or kind == "gptj"
    )
    qk: Literal["head", "width"] | None = None
    if kind in _HEAD_QK_NORM or (
        facts.get("use_qk_norm", "qk_layernorm", default=False) and kind not in ("llama4_text",)
    ):
        qk = "head"
    if kind in _WIDTH_QK_NORM:
        qk = "width"
    return Traits(
        gated=kind not in _UNGATED,
        qkv_bias=qkv_bias,
        out_bias=out_bias,
        mlp_bias=mlp_bias,
        norms=1 if kind in _ONE_NORM else 4 if kind in _FOUR_NORMS else 2,
        norm_width=0 if kind == "olmo" else 2 if kind in _LAYER_NORM else 1,
        qk_norm=qk,
        positions=_positions(facts),
        tied=bool(facts.get("tie_word_embeddings", default=_tied_by_default(kind))),
        head_bias=kind in ("gptj", "phi", "phimoe"),
    )


def _positions(facts: Facts) -> int:
    if facts.model_type in ("gpt2", "gpt_bigcode"):
        return facts.integer("max_position_embeddings", "n_positions", default=0)
    if facts.model_type == "opt":
        return facts.integer("max_position_embeddings") + 2
    return 0


def _tied_by_default(kind: str) -> bool:
    return kind in ("gpt2", "falcon", "opt", "bloom", "mpt", "gemma", "gemma2")
