"""Models with state layers: Mamba, gated delta nets, short convolutions, linear attention."""

from collections.abc import Callable

from exporter.errors import InputError
from exporter.kv.architecture import Attention, Cache, checked_layers, layer_types
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
    key_heads, value_heads = facts.integer("linear_num_key_heads"), facts.integer("linear_num_value_heads")
    key_dim, value_dim = facts.integer("linear_key_head_dim"), facts.integer("linear_value_head_dim")
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
    dim = facts.integer(prefix + "d_head", "head_dim")
    return StateShape(
        "mamba2",
        conv_dim=facts.integer(prefix + "expand", "expand") * facts.hidden_size,
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


def _jamba(facts: Facts) -> list[tuple[Cache, ...]]:
    inner = facts.integer("mamba_expand") * facts.hidden_size
    state = StateShape("mamba1", inner, facts.integer("mamba_d_conv"), inner, 1, facts.integer("mamba_d_state"))
    period, offset = facts.integer("attn_layer_period", default=8), facts.integer("attn_layer_offset", default=4)
    attention = _attention(facts)
    return [(attention if i % period == offset else state,) for i in range(checked_layers(facts))]


READERS: dict[str, Callable[[Facts], list[tuple[Cache, ...]]]] = {
    "granitemoehybrid": _granite_hybrid,
    "jamba": _jamba,
    "mamba2": _pure_mamba2,
    "qwen3_next": _qwen3_next,
}
