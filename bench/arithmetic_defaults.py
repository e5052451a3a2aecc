"""Write exporter/kv/defaults.json: what the configuration class of each model type fills in.

Needs Transformers 5 and vLLM 0.32 beside this project, so it runs in an environment of theirs:

    python bench/arithmetic_defaults.py

Kept are the values that exporter/kv asks for. A default that follows from another value (KV heads from heads, say) is
left out, since the arithmetic knows the rule; a list with one entry per layer is kept as its pattern.
"""

import ast
import importlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

KV = Path(__file__).parents[1] / "exporter" / "kv"
PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "language_model_config", "decoder")
NESTED = ("attn_config", "ffn_config", "linear_attn_config")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WIDTHS = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
PROBE = 47
"""A prime, so that no pattern fits by accident."""


def wanted() -> set[str]:
    """Every name that the arithmetic mentions."""
    names: set[str] = set()
    for path in KV.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)
    return names


def classes() -> Iterator[tuple[str, Any]]:
    """(model type, configuration class), vLLM's own before those of Transformers."""
    own = importlib.import_module("vllm.transformers_utils.config")._CONFIG_REGISTRY
    known = importlib.import_module("transformers").CONFIG_MAPPING
    for kind in sorted({*known, *own}):
        try:
            yield kind, own[kind] if kind in own else known[kind]
        except Exception as error:
            print(f"{kind}: {error}")


def defaults_of(cls: Any, names: set[str]) -> dict[str, Any]:
    """What an empty configuration of this class holds."""
    aliases: Mapping[str, str] = getattr(cls, "attribute_map", None) or {}
    raw = cls().to_dict()
    kept = {name: value for name, value in raw.items() if value is not None and _plain(name, value, names)}
    for part in (*PARTS, *NESTED):
        if isinstance(raw.get(part), dict):
            kind = raw[part].get("model_type") if part in PARTS else None
            kept[part] = {"model_type": kind} if kind else {k: v for k, v in raw[part].items() if k in names}
    for group in (LAYERS, WIDTHS, HEADS):
        kept = _without_computed(cls, raw, kept, group, aliases)
    kept |= _patterns(cls, raw, aliases)
    used = {name: alias for name, alias in aliases.items() if name in names or alias in names}
    return kept | ({"attribute_map": used} if used else {})


def _plain(name: str, value: Any, names: set[str]) -> bool:
    if name not in names or name in ("layer_types", "model_type", "architectures", "dtype", "torch_dtype"):
        return False
    return not isinstance(value, dict) and not (isinstance(value, list) and len(value) > 200)


def _stated(raw: Mapping[str, Any], group: tuple[str, ...], aliases: Mapping[str, str]) -> str | None:
    for name in group:
        for key in (name, aliases.get(name, "")):
            if isinstance(raw.get(key), int):
                return key
    return None


def _without_computed(
    cls: Any, raw: Mapping[str, Any], kept: dict[str, Any], group: tuple[str, ...], aliases: Mapping[str, str]
) -> dict[str, Any]:
    key = _stated(raw, group, aliases)
    if key is None:
        return kept
    changed = raw[key] + 2 if group is LAYERS else raw[key] * 2
    try:
        probe = cls(**{key: changed}).to_dict()
    except Exception:
        return kept
    return {n: v for n, v in kept.items() if n == key or isinstance(v, dict) or probe.get(n) == raw.get(n)}


def _patterns(cls: Any, raw: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    types = raw.get("layer_types")
    key = _stated(raw, LAYERS, aliases)
    if not isinstance(types, list) or not types:
        return {}
    if key is not None:
        try:
            types = cls(**{key: PROBE}).to_dict().get("layer_types") or types
        except Exception:
            types = list(types)
    period = _period(types)
    if period == len(types) > 10 and _period(types[:-1]) < len(types) // 2:
        return {"layer_types": types[: _period(types[:-1])], "layer_types_last": types[-1]}
    return {"layer_types": types[:period]}


def _period(types: list[str]) -> int:
    return next(p for p in range(1, len(types) + 1) if all(types[i] == types[i % p] for i in range(len(types))))


def main() -> None:
    """Write the table."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    names = wanted()
    table: dict[str, Any] = {}
    for kind, cls in classes():
        try:
            found = defaults_of(cls, names)
            json.dumps(found)
        except Exception as error:
            print(f"{kind}: {error}")
            continue
        if any(name in found for name in (*LAYERS, *HEADS, *PARTS)):
            table[kind] = found
    text = json.dumps(table, sort_keys=True, separators=(",", ":"))
    (KV / "defaults.json").write_text(text + "\n", encoding="utf-8")
    print(f"{len(table)} model types, {len(text)} bytes")


if __name__ == "__main__":
    main()
