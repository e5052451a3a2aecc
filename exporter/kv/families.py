"""The families of models that differ from the general rule, one small function each.

The general rule: every layer is attention with the model's KV heads and head size; a sliding window applies to the
layers typed `sliding_attention`, or to all if layers have no types.
"""

from collections.abc import Callable
from dataclasses import replace

from exporter.errors import InputError
from exporter.kv import mixed_families, state_families
from exporter.kv.architecture import Architecture, Attention, Cache, Latent, checked_layers, layer_types
from exporter.kv.facts import Facts

Reader = Callable[[Facts], list[tuple[Cache, ...]]]

_MLA_TYPES = frozenset(
    {
        "axk1",
        "bailing_hybrid",
        "deepseek_mtp",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "kimi_k2",
        "kimi_linear",
        "longcat_flash",
        "pangu_ultra_moe",
    }
)
_IGNORES_LAYER_TYPES = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe"})
_GENERAL_RULE = {
    "aquila",
    "bailing_moe",
    "bailing_moe_v2",
    "deepseek",
    "exaone",
    "internlm",
    "internlm2",
    "internlm3",
    "iquestcoder",
    "k2_horizon",
    "mimo",
    "minicpm",
    "orion",
    "pangu_embedded",
    "param2moe",
    "rnj1",
    "sarvam_moe",
    "solar",
    "step1",
    "telechat2",
    "telechat3",
    "teleflm",
    "yi",
}
"""Types that checkpoints bring with their own code, and whose layers are all alike."""
_WINDOW_PLUS_ONE = frozenset({"cohere2", "cohere2_moe", "cohere_compass_text"})
_NOT_COVERED = {
    "deepseek_v4": "compressed and windowed caches in five groups",
    "deepseek_v41": "compressed and windowed caches in five groups",
    "dots3_note": "caches of its own",
    "glm5_next": "indexed and delta attention",
    "glm5_next_text": "indexed and delta attention",
    "inkling_model": "caches of its own",
    "inkling_text": "caches of its own",
    "minimax_m3_vl_text": "an index of keys beside sparse attention",
    "qwen4_exp_text": "indexed and linear attention with states of several sizes",
    "recurrent_gemma": "recurrent states that vLLM does not serve",
    "rwkv": "recurrent states that vLLM does not serve",
    "xlstm": "recurrent states that vLLM does not serve",
    "zamba": "recurrent states that vLLM does not serve",
}
_PLAIN_TYPES = {"attention", "chunked_attention", "full_attention", "global", "local", "sliding_attention"}
_ENCODER_ENDINGS = ("VisionModel", "ForImageClassification", "ForMaskedLM", "CLIPModel", "BertModel", "EncoderModel")
_REFUSED = {
    "bert": "an encoder",
    "roberta": "an encoder",
    "xlm-roberta": "an encoder",
    "modernbert": "an encoder",
    "clip": "an image and text encoder",
    "siglip": "an image and text encoder",
    "vit": "a vision encoder",
    "siglip_vision_model": "a vision encoder",
    "clip_vision_model": "a vision encoder",
}


def caches_of(facts: Facts) -> Architecture:
    """What each layer keeps. Raises `InputError` for what vLLM does not serve as a decoder."""
    _refuse_encoders(facts)
    if facts.model_type in _NOT_COVERED:
        raise InputError(
            f"model type {facts.model_type} keeps {_NOT_COVERED[facts.model_type]}, which this version does not count; "
            "rather than guess, read the capacity from the engine's own page or log (--from-log)"
        )
    kind = facts.model_type
    reader = _READERS.get(kind) or mixed_families.READERS.get(kind) or state_families.READERS.get(kind)
    if reader is not None:
        return Architecture(facts, tuple(reader(facts)))
    if facts.model_type in _MLA_TYPES and facts.get("kv_lora_rank") is not None:
        return Architecture(facts, tuple(_latent(facts)))
    reason = (
        None
        if facts.known or kind in _GENERAL_RULE
        else f"model type {facts.model_type or '(none)'} is not known; computed from its dimensions"
    )
    return Architecture(facts, tuple(attention_layers(facts)), estimated=reason)


def _refuse_encoders(facts: Facts) -> None:
    what = _REFUSED.get(facts.model_type)
    if what is None and facts.model_type.endswith(("_vision_model", "_vision", "_audio_encoder", "_encoder")):
        what = "an encoder"
    if what is None and facts.architecture.endswith(_ENCODER_ENDINGS):
        what = "an encoder"
    if what is None and "patch_size" in facts.text and "vocab_size" not in facts.text and not facts.known_decoder:
        what = "a vision encoder"
    if what is None and (facts.outer.get("is_encoder_decoder") is True or facts.get("is_encoder_decoder") is True):
        what = "an encoder-decoder model"
    if what is not None:
        raise InputError(
            f"model type {facts.model_type} is {what}, which has no decoder KV cache to plan; "
            "pass the config.json of a text generation model"
        )


def uniform(facts: Facts, *, window: int | None = None, chunk: int | None = None) -> Attention:
    """One attention layer with the model's own heads."""
    heads, kv_heads = facts.heads, facts.kv_heads
    if heads < 1 or kv_heads < 1 or facts.head_dim < 1:
        raise InputError(
            f"config.json: {heads} attention heads, {kv_heads} KV heads of size {facts.head_dim}; "
            "all must be at least 1: is this the config.json of a text model?"
        )
    if heads % kv_heads:
        raise InputError(f"config.json: {heads} attention heads do not divide over {kv_heads} KV heads")
    return Attention(kv_heads, facts.head_dim, facts.head_dim, window=window, chunk=chunk)


def attention_layers(facts: Facts) -> list[tuple[Cache, ...]]:
    """The general rule."""
    count = checked_layers(facts)
    types = layer_types(facts)
    window = facts.window
    if window and facts.model_type in ("qwen2", "qwen3") and "sliding_attention" in (types or ())[:count]:
        raise InputError(
            f"config.json: {facts.model_type} with a sliding window on some layers is refused by vLLM; "
            "set use_sliding_window to false, as its publishers do"
        )
    per_layer = facts.get("per_layer_config")
    if types is None or all(kind == "sliding_attention" for kind in types[:count]):
        return [(uniform(facts, window=window),)] * count
    strange = sorted({kind for kind in types[:count] if kind not in _PLAIN_TYPES})
    if strange:
        raise InputError(
            f"config.json: layers of type {', '.join(strange)} keep a cache that is not known for {facts.model_type}; "
            "nothing is guessed: read the capacity from the engine's own page or log (--from-log)"
        )
    extra = 1 if facts.model_type in _WINDOW_PLUS_ONE else 0
    window = window + extra if window is not None else None
    shared = facts.get("num_kv_shared_layers", default=0)
    owners = count - (shared if isinstance(shared, int) else 0)
    result: list[tuple[Cache, ...]] = []
    for index in range(count):
        sliding = types[index] == "sliding_attention" and facts.model_type not in _IGNORES_LAYER_TYPES
        attention = uniform(facts, window=window if sliding else None)
        result.append((replace(attention, shared=index >= owners > 0),))
    return result if not per_layer else _overridden(result, per_layer)


def _overridden(layers: list[tuple[Cache, ...]], overrides: object) -> list[tuple[Cache, ...]]:
    """Layers whose heads or head size the file states one by one (`per_layer_config`)."""
    if not isinstance(overrides, dict):
        return layers
    result = list(layers)
    for key, values in overrides.items():
        index = int(key)
        cache = result[index][0] if result[index] else None
        if isinstance(cache, Attention) and isinstance(values, dict):
            dim = int(values.get("head_dim", cache.head_dim))
            heads = int(values.get("num_key_value_heads", cache.kv_heads))
            result[index] = (replace(cache, kv_heads=heads, head_dim=dim, head_dim_v=dim),)
    return result


def _latent(facts: Facts) -> list[tuple[Cache, ...]]:
    width = facts.integer("kv_lora_rank") + facts.integer("qk_rope_head_dim", default=0)
    layer: tuple[Cache, ...] = (Latent(width),)
    if facts.get("index_topk") is not None:
        keys = facts.integer("index_head_dim", default=128)
        layer = (Latent(keys, fixed_bytes=keys + keys // 128 * 4), Latent(width, sparse=True))
    return [layer] * checked_layers(facts)


def _llama4(facts: Facts) -> list[tuple[Cache, ...]]:
    """Chunked local attention on the layers with RoPE, full attention on the others."""
    chunk = facts.get("attention_chunk_size")
    interval = facts.integer("no_rope_layer_interval", default=4)
    stated = facts.given("no_rope_layers")
    types = layer_types(facts) if facts.given("layer_types") else None
    result: list[tuple[Cache, ...]] = []
    for index in range(checked_layers(facts)):
        if isinstance(stated, list) and stated:
            local = bool(stated[index])
        elif types is not None:
            local = types[index] == "chunked_attention"
        else:
            local = (index + 1) % interval != 0
        result.append((uniform(facts, chunk=int(chunk) if local and chunk else None),))
    return result


def _gpt_oss(facts: Facts) -> list[tuple[Cache, ...]]:
    """Alternates by index in vLLM: even layers slide, whatever `layer_types` says."""
    return [(uniform(facts, window=facts.window if i % 2 == 0 else None),) for i in range(checked_layers(facts))]


def _falcon(facts: Facts) -> list[tuple[Cache, ...]]:
    if not facts.get("new_decoder_architecture", default=False) and facts.get("multi_query", default=False):
        heads = 1
    else:
        heads = facts.kv_heads
    return [(Attention(heads, facts.head_dim, facts.head_dim),)] * checked_layers(facts)


def _minicpm3(facts: Facts) -> list[tuple[Cache, ...]]:
    """MLA's projections, but K and V of every head are cached, V padded to the size of K."""
    dim = facts.integer("qk_nope_head_dim") + facts.integer("qk_rope_head_dim")
    return [(Attention(facts.heads, dim, dim),)] * checked_layers(facts)


def _hy_v4(facts: Facts) -> list[tuple[Cache, ...]]:
    width = facts.integer("kv_lora_rank") + facts.integer("qk_rope_head_dim")
    return [(Latent(width),)] * checked_layers(facts)


_READERS: dict[str, Reader] = {
    "hy_v4": _hy_v4,
    "minicpm3": _minicpm3,
    "falcon": _falcon,
    "gpt_oss": _gpt_oss,
    "llama4_text": _llama4,
    "llama4": _llama4,
}
