"""Mixtures of experts: how many, how wide, on which layers."""

from dataclasses import dataclass

from exporter.kv.facts import Facts

_EXPERT_NAMES = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_WIDTH_NAMES = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size")


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of one layer: `count` of `width`, and a shared one of `shared_width` beside them (0: none)."""

    count: int
    width: int
    shared_width: int = 0
    shared_gate: bool = False


def experts_of(facts: Facts) -> Experts | None:
    """The model's experts, or `None` for a dense model."""
    if facts.get("enable_moe_block") is False:
        return None
    nested = facts.get("ffn_config")
    if isinstance(nested, dict) and nested.get("moe_num_experts"):
        return Experts(int(nested["moe_num_experts"]), int(nested.get("ffn_hidden_size") or 4 * facts.hidden_size))
    count = _first(facts, *_EXPERT_NAMES)
    if count < 2:
        return None
    width = _first(facts, *_WIDTH_NAMES)
    dense = _first(facts, "intermediate_size", "ffn_hidden_size", "dense_intermediate_size")
    if not width:
        width = dense
    shared = _first(facts, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts") * width
    explicit = _first(
        facts,
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "share_expert_dim",
    )
    if explicit:
        shared = explicit
    if facts.model_type in ("llama4_text", "hunyuan_v1_moe"):
        shared = dense
    return Experts(count, width, shared, shared_gate=facts.get("shared_expert_intermediate_size") is not None)


def sparse_layers(facts: Facts, count: int) -> list[bool]:
    """Per layer, whether its feed-forward part is a mixture of experts."""
    types = facts.get("mlp_layer_types")
    if isinstance(types, list) and len(types) >= count:
        return [kind == "sparse" for kind in types[:count]]
    listed = facts.get("moe_layers_enum")
    if isinstance(listed, str) and listed:
        chosen = {int(index) for index in listed.split(",")}
        return [index in chosen for index in range(count)]
    moe_layers = facts.given("moe_layers")
    if isinstance(moe_layers, list):
        return [index in moe_layers for index in range(count)]
    frequency = facts.get("moe_layer_freq")
    if isinstance(frequency, list):
        return [bool(kind) for kind in frequency[:count]]
    result = [True] * count
    step = facts.get("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    if isinstance(step, int) and step > 1:
        result = [(index + 1) % step == 0 for index in range(count)]
    elif step == 0:
        return [False] * count
    period = facts.get("expert_layer_period")
    if isinstance(period, int):
        offset = facts.integer("expert_layer_offset", default=0)
        result = [index % period == offset for index in range(count)]
    if isinstance(frequency, int) and frequency > 1:
        result = [index % frequency == 0 for index in range(count)]
    start = facts.get("moe_layer_start_index")
    if isinstance(start, int):
        end = facts.integer("moe_layer_end_index", default=count - 1)
        interval = facts.integer("moe_layer_interval", default=1)
        result = [start <= i <= (end if end >= 0 else count - 1) and (i + 1) % interval == 0 for i in range(count)]
    dense = facts.integer("first_k_dense_replace", "num_dense_layers", default=0)
    only = facts.get("mlp_only_layers")
    excluded = set(only) if isinstance(only, list) else set()
    return [sparse and index >= dense and index not in excluded for index, sparse in enumerate(result)]


def _first(facts: Facts, *names: str) -> int:
    for name in names:
        value = facts.get(name)
        if isinstance(value, list):
            value = value[0] if value else 0
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
