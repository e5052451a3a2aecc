"""Models whose attention layers differ from one another in heads, head size or number per layer."""

from collections.abc import Callable, Mapping
from typing import Any

from exporter.errors import InputError
from exporter.kv.architecture import Attention, Cache, Latent, checked_layers, layer_types
from exporter.kv.facts import Facts


def _mimo_v2(facts: Facts) -> list[tuple[Cache, ...]]:
    """Windowed layers, marked 1 in `hybrid_layer_pattern`, have KV heads of their own; V is narrower than K."""
    count = checked_layers(facts)
    pattern = facts.get("hybrid_layer_pattern")
    types = layer_types(facts)
    if isinstance(pattern, list) and len(pattern) >= count:
        windowed = [bool(kind) for kind in pattern[:count]]
    elif types is not None:
        windowed = [kind == "sliding_attention" for kind in types[:count]]
    else:
        raise InputError("config.json: a mimo_v2 model needs hybrid_layer_pattern to tell its windowed layers")
    full = Attention(facts.kv_heads, facts.head_dim, facts.integer("v_head_dim", default=facts.head_dim))
    dim = facts.integer("swa_head_dim", default=facts.head_dim)
    window = Attention(
        facts.integer("swa_num_key_value_heads", default=facts.kv_heads),
        dim,
        facts.integer("swa_v_head_dim", "v_head_dim", default=dim),
        window=facts.integer("sliding_window_size", "sliding_window"),
    )
    return [(window if local else full,) for local in windowed]


def _step3p5(facts: Facts) -> list[tuple[Cache, ...]]:
    """Layers of the type that `attention_other_setting` names have its heads; sliding ones a window."""
    count = checked_layers(facts)
    types = layer_types(facts) or [
        "sliding_attention" if index % 2 == 0 else "full_attention" for index in range(count)
    ]
    other = facts.get("attention_other_setting") or {}
    groups = facts.integer("num_attention_groups", default=facts.kv_heads)
    result: list[tuple[Cache, ...]] = []
    for kind in types[:count]:
        special = other if kind == other.get("attention_type") else {}
        dim = int(special.get("head_dim") or facts.head_dim)
        window = facts.window if kind == "sliding_attention" else None
        result.append((Attention(int(special.get("num_attention_groups") or groups), dim, dim, window=window),))
    return result


def _longcat(facts: Facts) -> list[tuple[Cache, ...]]:
    """Two MLA sublayers in every layer."""
    latent = Latent(facts.integer("kv_lora_rank") + facts.integer("qk_rope_head_dim"))
    return [(latent, latent)] * min(facts.integer("num_layers", "num_hidden_layers"), checked_layers(facts))


def _chatglm(facts: Facts) -> list[tuple[Cache, ...]]:
    grouped = facts.get("multi_query_attention", default=False)
    heads = facts.integer("multi_query_group_num") if grouped else facts.heads
    dim = facts.integer("kv_channels", default=facts.hidden_size // max(1, facts.heads))
    return [(Attention(heads, dim, dim),)] * checked_layers(facts)


def _dbrx(facts: Facts) -> list[tuple[Cache, ...]]:
    settings = facts.get("attn_config") or {}
    heads = int(settings.get("kv_n_heads") or facts.heads)
    return [(Attention(heads, facts.head_dim, facts.head_dim),)] * checked_layers(facts)


def _nemotron_nas(facts: Facts) -> list[tuple[Cache, ...]]:
    """Every layer states how many query heads share a KV head, or that it has no attention."""
    blocks = facts.get("block_configs")
    if not isinstance(blocks, list):
        raise InputError("config.json: a nemotron-nas model needs block_configs")
    result: list[tuple[Cache, ...]] = []
    for block in blocks:
        attention: Mapping[str, Any] = block.get("attention") or {}
        if attention.get("no_op") or attention.get("replace_with_linear"):
            result.append(())
            continue
        result.append((Attention(facts.heads // int(attention["n_heads_in_group"]), facts.head_dim, facts.head_dim),))
    return result


def _window_lists(facts: Facts) -> list[tuple[Cache, ...]]:
    """One window per layer as a list (`sliding_windows`, `interleaved_sliding_window`), repeated if it is shorter."""
    count = checked_layers(facts)
    windows = facts.get("sliding_windows", "interleaved_sliding_window")
    types = layer_types(facts)
    if not isinstance(windows, list) or not windows:
        one = windows if isinstance(windows, int) else facts.window
        windows = [one if types is None or types[index] == "sliding_attention" else None for index in range(count)]
    caches = []
    for index in range(count):
        window = windows[index % len(windows)]
        if types is not None and types[index] == "full_attention":
            window = None
        caches.append(Attention(facts.kv_heads, facts.head_dim, facts.head_dim, window=int(window) if window else None))
    return [(cache,) for cache in caches]


READERS: dict[str, Callable[[Facts], list[tuple[Cache, ...]]]] = {
    "chatglm": _chatglm,
    "dbrx": _dbrx,
    "exaone_moe": _window_lists,
    "longcat_flash": _longcat,
    "mimo_v2": _mimo_v2,
    "mimo_v2_flash": _mimo_v2,
    "nemotron-nas": _nemotron_nas,
    "plamo3": _window_lists,
    "step3p5": _step3p5,
}
