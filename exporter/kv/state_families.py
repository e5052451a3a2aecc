"""Models with state layers: Mamba, gated delta nets, short convolutions, linear attention."""

from collections.abc import Callable
from dataclasses import replace

from exporter.errors import InputError
from exporter.kv.architecture import Attention, Cache, Latent, checked_layers, layer_types
from exporter.kv.facts import Facts
from exporter.kv.states import StateShape

_ATTENTION_TYPES = {"attention", "full_attention", "hybrid"}


def _attention(facts: Facts) -> Attention:
    return Attention(facts.kv_heads, facts.head_dim, facts.head_dim)


def _by_types(facts: Facts, state: StateShape) -> list[tuple[Cache, ...]]:
    types = layer_types(facts)
    if types is None:
        types = facts.get("layers_block_type")
    if not isinstance(types, list):
        raise InputError(f"config.json: {facts.model_type} needs layer_types to tell attention from state layers")
    attention = _attention(facts)
    return [(attention if kind in _ATTENTION_TYPES else state,) for kind in types[: checked_layers(facts)]]


def _gated_delta(facts: Facts) -> StateShape:
    key_heads = facts.integer("linear_num_key_heads", default=facts.heads)
    value_heads = facts.integer("linear_num_value_heads", default=facts.heads)
    key_dim = facts.integer("linear_key_head_dim", default=3 * facts.hidden_size // (4 * max(1, facts.heads)))
    value_dim = facts.integer("linear_value_head_dim", default=2 * key_dim)
    return StateShape(
        "gated_delta",
        conv_dim=key_dim * key_heads * 2 + value_dim * value_heads,
        conv_kernel=facts.integer("linear_conv_kernel_dim"),
        heads=value_heads,
        head_dim=value_dim,
        state_dim=key_dim,
    )


def _qwen3_next(facts: Facts) -> list[tuple[Cache, ...]]:
    return _by_types(facts, _gated_delta(facts))


def _mamba2(facts: Facts, prefix: str = "mamba_") -> StateShape:
    heads = facts.integer(prefix + "n_heads", "num_heads")
    inner = facts.integer(prefix + "expand", "expand") * facts.hidden_size
    dim = facts.get(prefix + "d_head", "head_dim")
    dim = dim if isinstance(dim, int) and dim > 0 else inner // max(1, heads)
    return StateShape(
        "mamba2",
        conv_dim=inner,
        conv_kernel=facts.integer(prefix + "d_conv", "conv_kernel"),
        heads=heads,
        head_dim=dim,
        state_dim=facts.integer(prefix + "d_state", "state_size"),
        groups=facts.integer(prefix + "n_groups", "n_groups"),
    )


def _granite_hybrid(facts: Facts) -> list[tuple[Cache, ...]]:
    return _by_types(facts, _mamba2(facts))


def _pure_mamba2(facts: Facts) -> list[tuple[Cache, ...]]:
    return [(_mamba2(facts),)] * checked_layers(facts)


def _pure_mamba1(facts: Facts) -> list[tuple[Cache, ...]]:
    inner = facts.integer("intermediate_size", default=facts.integer("expand", default=2) * facts.hidden_size)
    state = StateShape("mamba1", inner, facts.integer("conv_kernel"), inner, 1, facts.integer("state_size"))
    return [(state,)] * checked_layers(facts)


def _jamba(facts: Facts) -> list[tuple[Cache, ...]]:
    inner = facts.integer("mamba_expand") * facts.hidden_size
    state = StateShape("mamba1", inner, facts.integer("mamba_d_conv"), inner, 1, facts.integer("mamba_d_state"))
    period, offset = facts.integer("attn_layer_period", default=8), facts.integer("attn_layer_offset", default=4)
    attention = _attention(facts)
    return [(attention if i % period == offset else state,) for i in range(checked_layers(facts))]


def _bamba(facts: Facts) -> list[tuple[Cache, ...]]:
    indices = facts.get("attn_layer_indices") or []
    attention, state = _attention(facts), _mamba2(facts)
    return [(attention if index in indices else state,) for index in range(checked_layers(facts))]


def _falcon_h1(facts: Facts) -> list[tuple[Cache, ...]]:
    """Every layer runs attention and Mamba2 side by side."""
    state = _mamba2(facts)
    inner = facts.get("mamba_d_ssm")
    if isinstance(inner, int):
        state = replace(state, conv_dim=inner)
    return [(_attention(facts), state)] * checked_layers(facts)


def _nemotron_h(facts: Facts) -> list[tuple[Cache, ...]]:
    """One letter a layer: M a Mamba2 state, * attention, - and E nothing to keep."""
    pattern = nemotron_pattern(facts)
    heads, dim = facts.integer("mamba_num_heads"), facts.integer("mamba_head_dim")
    state = StateShape(
        "mamba2",
        conv_dim=heads * dim,
        conv_kernel=facts.integer("conv_kernel"),
        heads=heads,
        head_dim=dim,
        state_dim=facts.integer("ssm_state_size"),
        groups=facts.integer("n_groups"),
    )
    attention = Attention(facts.kv_heads, facts.head_dim, facts.head_dim, window=facts.window)
    kept: dict[str, tuple[Cache, ...]] = {"M": (state,), "*": (attention,)}
    return [kept.get(letter, ()) for letter in pattern]


def nemotron_pattern(facts: Facts) -> str:
    """The layers of a Nemotron-H as letters: M Mamba2, * attention, - a dense MLP, E experts."""
    types = facts.given("layers_block_type")
    if isinstance(types, list):
        letters = {
            "mamba": "M",
            "attention": "*",
            "mlp": "-",
            "moe": "E",
            "linear_attention": "M",
            "full_attention": "*",
        }
        return "".join(letters.get(str(kind), "-") for kind in types)
    pattern = facts.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return pattern
    types = facts.get("layers_block_type")
    if isinstance(types, list):
        letters = {
            "mamba": "M",
            "attention": "*",
            "mlp": "-",
            "moe": "E",
            "linear_attention": "M",
            "full_attention": "*",
        }
        return "".join(letters.get(str(kind), "-") for kind in types)
    raise InputError("config.json: a nemotron_h model needs hybrid_override_pattern or layers_block_type")


def _zamba2(facts: Facts) -> list[tuple[Cache, ...]]:
    """Mamba2 in every layer; shared attention blocks, with a cache of their own at each use, in the hybrid ones."""
    types = facts.get("layers_block_type") or []
    count = checked_layers(facts)
    ids = facts.get("hybrid_layer_ids")
    uses = len(ids) if isinstance(ids, list) else sum(kind == "hybrid" for kind in types[:count])
    inner = facts.integer("mamba_expand") * facts.hidden_size
    heads = facts.integer("n_mamba_heads")
    state = StateShape(
        "mamba2",
        conv_dim=inner,
        conv_kernel=facts.integer("mamba_d_conv"),
        heads=heads,
        head_dim=facts.integer("mamba_headdim", default=inner // heads),
        state_dim=facts.integer("mamba_d_state"),
        groups=facts.integer("mamba_ngroups", "n_groups"),
    )
    dim = facts.integer("attention_head_dim", default=2 * facts.hidden_size // facts.heads)
    attention: Cache = Attention(facts.heads, dim, dim)
    return [(*([attention] * uses), state), *[(state,)] * (count - 1)]


def _lfm2(facts: Facts) -> list[tuple[Cache, ...]]:
    state = StateShape(
        "short_conv", facts.integer("conv_dim", default=facts.hidden_size), facts.integer("conv_L_cache"), 0, 0, 0
    )
    types = facts.given("layer_types")
    count = checked_layers(facts)
    if isinstance(types, list):
        full = [kind == "full_attention" for kind in types]
    else:
        indices = facts.get("full_attn_idxs")
        full = [indices is None or index in indices for index in range(count)]
    attention = _attention(facts)
    return [(attention if full[index] else state,) for index in range(count)]


def _kimi_linear(facts: Facts) -> list[tuple[Cache, ...]]:
    """Kimi delta attention on the layers listed (counted from 1), MLA on the others."""
    linear = facts.get("linear_attn_config") or {}
    width = facts.integer("kv_lora_rank") + facts.integer("qk_rope_head_dim")
    heads, dim = int(linear.get("num_heads", facts.heads)), int(linear.get("head_dim", 128))
    state = StateShape(
        "delta_kda",
        conv_dim=3 * heads * dim,
        conv_kernel=int(linear.get("short_conv_kernel_size", 4)),
        heads=heads,
        head_dim=dim,
        state_dim=dim,
    )
    kda = set(linear.get("kda_layers") or [])
    return [(state,) if index + 1 in kda else (Latent(width),) for index in range(checked_layers(facts))]


def _bailing_linear(facts: Facts) -> list[tuple[Cache, ...]]:
    """Lightning attention, and MLA on the last layer of each group."""
    size = facts.integer("layer_group_size", default=1)
    state = StateShape("linear", 0, 0, facts.heads, facts.head_dim, facts.head_dim)
    width = facts.integer("kv_lora_rank", default=512) + facts.integer("qk_rope_head_dim", default=64)
    return [
        (state,) if size > 0 and (index + 1) % size != 0 else (Latent(width),) for index in range(checked_layers(facts))
    ]


def _minimax_text(facts: Facts) -> list[tuple[Cache, ...]]:
    """Lightning attention where `attn_type_list` (or `layer_types`) says 0, full attention where it says 1."""
    stated = facts.given("attn_type_list")
    types = layer_types(facts) or []
    count = checked_layers(facts)
    full = [bool(kind) for kind in stated] if isinstance(stated, list) else [k == "full_attention" for k in types]
    state = StateShape("linear", 0, 0, facts.heads, facts.head_dim, facts.head_dim)
    return [(_attention(facts) if full[index] else state,) for index in range(count)]


READERS: dict[str, Callable[[Facts], list[tuple[Cache, ...]]]] = {
    "bailing_hybrid": _bailing_linear,
    "bamba": _bamba,
    "falcon_h1": _falcon_h1,
    "falcon_mamba": _pure_mamba1,
    "granitemoehybrid": _granite_hybrid,
    "jamba": _jamba,
    "kimi_linear": _kimi_linear,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "mamba": _pure_mamba1,
    "mamba2": _pure_mamba2,
    "minimax": _minimax_text,
    "minimax_m1": _minimax_text,
    "minimax_text_01": _minimax_text,
    "nemotron_h": _nemotron_h,
    "nemotron_h_puzzle": _nemotron_h,
    "olmo_hybrid": _qwen3_next,
    "qwen3_5_moe_text": _qwen3_next,
    "qwen3_5_text": _qwen3_next,
    "qwen3_next": _qwen3_next,
    "zamba2": _zamba2,
}
