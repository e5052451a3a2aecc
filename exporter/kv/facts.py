"""A config.json as vLLM reads it: the language model's part, with the values that files leave out.

`save_pretrained` writes only what differs from the architecture's defaults, real checkpoints omit more, and one
concept has many names. `defaults.json` holds the defaults and the aliases of each model type, read from the
configuration classes of Transformers 5 and vLLM (bench/arithmetic_defaults.py makes it).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from exporter.errors import InputError

_TEXT_PARTS = (
    "text_config",
    "llm_config",
    "language_config",
    "language_model_config",
    "thinker_config",
    "text_model_config",
    "decoder",
    "generator",
)
_KV_HEAD_NAMES = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")
_MAX_LENGTH_NAMES = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_UNSCALED_ROPE = (None, "default", "llama3", "longrope", "mrope", "proportional", "su")
"""RoPE kinds whose stated length already includes their scaling."""


@cache
def _defaults() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("defaults.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, Any]] = json.loads(text)
    return loaded


@dataclass(frozen=True, slots=True)
class Facts:
    """The language model of a config.json; `get` falls back to the model type's defaults."""

    outer: Mapping[str, Any]
    text: Mapping[str, Any]
    architecture: str
    model_type: str

    def given(self, name: str) -> Any:
        """The value that the file itself states, under `name` or an alias of it; `None` if it does not."""
        if self.text.get(name) is not None:
            return self.text[name]
        for alias in self._aliases(name):
            if self.text.get(alias) is not None:
                return self.text[alias]
        return None

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of `names` that the file states, else the first that the model type has a default for."""
        for name in names:
            value = self.given(name)
            if value is not None:
                return value
        table = _defaults().get(self.model_type, {})
        for name in names:
            if name in self.text and self.text[name] is None:
                continue
            for key in (name, *self._aliases(name)):
                if table.get(key) is not None:
                    return table[key]
        return default

    def integer(self, *names: str, default: int | None = None) -> int:
        """An integer that must exist unless a default is given; raises `InputError` naming it."""
        value = self.get(*names, default=default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**53:
            raise InputError(
                f"config.json: {names[0]} is {'missing' if value is None else repr(value)[:40]}, "
                "but it must be a whole number; is this the config.json of a text model?"
            )
        return value

    def _aliases(self, name: str) -> list[str]:
        table: dict[str, str] = _defaults().get(self.model_type, {}).get("attribute_map", {})
        return [table[name]] if name in table else [key for key, value in table.items() if value == name]

    @property
    def known(self) -> bool:
        """Whether the model type is in the table of known types."""
        return self.model_type in _defaults()

    @property
    def known_decoder(self) -> bool:
        """Whether the model type is known to have a vocabulary, as every text model has."""
        return "vocab_size" in _defaults().get(self.model_type, {})

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return self.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers")

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return self.integer("hidden_size", "n_embd", "d_model", "model_dim")

    @property
    def heads(self) -> int:
        """Query heads of the whole model."""
        return self.integer("num_attention_heads", "n_head", "n_heads", default=0)

    @property
    def kv_heads(self) -> int:
        """KV heads of the whole model; as many as query heads unless the file or the type says fewer."""
        for name in _KV_HEAD_NAMES:
            value = self.given(name)
            if value is not None:
                return int(value)
        default = self.get(*_KV_HEAD_NAMES)
        return int(default) if default is not None else self.heads

    @property
    def head_dim(self) -> int:
        """Size of one head: stated, or hidden_size over heads."""
        stated = self.get("head_dim")
        if isinstance(stated, int) and stated > 0:
            return stated
        stated = self.get("hidden_size_per_head")
        if stated:
            return int(stated)
        if not self.heads:
            return 0
        size = self.hidden_size // self.heads
        if size < 1:
            raise InputError(
                f"config.json: a hidden size of {self.hidden_size} leaves nothing to each of {self.heads} heads; "
                "check it against the original"
            )
        return size

    @property
    def window(self) -> int | None:
        """The sliding window of the model, if it uses one; 0 means none."""
        if self.get("use_sliding_window") is False:
            return None
        value = self.get("sliding_window")
        return int(value) if isinstance(value, int) and value > 0 else None

    @property
    def dtype(self) -> str:
        """The dtype the model computes in, before `--dtype`: float32 checkpoints are served as bfloat16 or float16."""
        for part in (self.outer, self.text):
            for name in ("dtype", "torch_dtype"):
                value = part.get(name)
                if isinstance(value, str) and value != "auto":
                    return value.removeprefix("torch.")
        return "float32"

    @property
    def max_length(self) -> int | None:
        """Context the model was made for, RoPE scaling included; `None` if the file does not bound it."""
        lengths = [self.get(name) for name in _MAX_LENGTH_NAMES]
        known = [int(length) for length in lengths if isinstance(length, int | float) and 0 < length < 2**53]
        if not known:
            return None
        rope = self.given("rope_scaling") or self.given("rope_parameters")
        if not isinstance(rope, Mapping):
            return min(known)
        kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
        if kind in _UNSCALED_ROPE or not isinstance(factor, int | float):
            return min(known)
        base = rope.get("original_max_position_embeddings") if kind == "yarn" else None
        return max(min(known), int((base or min(known)) * factor))


def read_facts(config: Mapping[str, Any]) -> Facts:
    """The facts of a parsed config.json. Raises `InputError` if no language model is in it."""
    if "base_model_name_or_path" in config and ("peft_type" in config or "lora_alpha" in config):
        raise InputError(
            "this is the configuration of a LoRA adapter, not of a model; pass the config.json of its base model, "
            f"{config.get('base_model_name_or_path')}"
        )
    architectures = config.get("architectures") or []
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    outer_type = str(config.get("model_type") or "")
    text = config
    text_type = outer_type
    for _ in range(3):
        part = next((name for name in _TEXT_PARTS if isinstance(text.get(name), Mapping)), None)
        if part is not None:
            text = text[part]
            text_type = str(
                text.get("model_type") or _defaults().get(text_type, {}).get(part, {}).get("model_type") or text_type
            )
            continue
        implied = next((n for n in _TEXT_PARTS if isinstance(_defaults().get(text_type, {}).get(n), Mapping)), None)
        if implied is None:
            break
        text_type = str(_defaults()[text_type][implied].get("model_type") or text_type)
        if any(name in text for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")):
            break
        text = {}
    return Facts(outer=config, text=text, architecture=architecture, model_type=text_type)
