"""A config.json is read as vLLM reads it: aliases, defaults, nested language models."""

from typing import Any

import pytest

from exporter.errors import InputError
from exporter.kv.architecture import layer_types
from exporter.kv.facts import read_facts
from exporter.kv.options import EngineOptions
from exporter.kv.sizing import size
from tests.kv.truth import config

LLAMA = config("llama-3.1-8b")


@pytest.mark.parametrize("part", ["text_config", "llm_config", "language_config", "language_model_config"])
def test_the_language_model_may_be_nested(part: str) -> None:
    """A vision model's language part is what counts, wherever it is kept."""
    outer = {
        "architectures": ["SomeVLForConditionalGeneration"],
        "model_type": "some_vl",
        part: LLAMA,
        "vision_config": {},
    }
    options = EngineOptions(max_model_len=8192)
    assert size(outer, options, 2**30).groups == size(LLAMA, options, 2**30).groups


def test_a_thinker_holds_its_text_model() -> None:
    """Omni models nest twice."""
    facts = read_facts({"model_type": "omni", "thinker_config": {"text_config": LLAMA}})
    assert (facts.layers, facts.kv_heads) == (32, 8)


@pytest.mark.parametrize(
    ("file", "facts"),
    [
        ({"model_type": "gpt2"}, (12, 12, 12, 64)),
        ({"model_type": "gpt2", "n_layer": 48, "n_head": 25, "n_embd": 1600}, (48, 25, 25, 64)),
        ({"model_type": "llama"}, (32, 32, 32, 128)),
        ({"model_type": "llama", "num_attention_heads": 64, "hidden_size": 8192}, (32, 64, 64, 128)),
        ({"model_type": "qwen2", "num_attention_heads": 64}, (32, 64, 32, 64)),
        ({"model_type": "mistral"}, (32, 32, 8, 128)),
        ({"model_type": "gemma2"}, (26, 8, 4, 256)),
        ({"model_type": "qwen3_moe"}, (24, 32, 4, 64)),
    ],
)
def test_what_a_file_leaves_out_has_the_types_default(file: dict[str, Any], facts: tuple[int, ...]) -> None:
    """Layers, heads, KV heads and head size are those of the type's configuration class."""
    read = read_facts(file)
    assert (read.layers, read.heads, read.kv_heads, read.head_dim) == facts


def test_a_stated_null_is_not_a_default() -> None:
    """`sliding_window: null` means none, though the type has one."""
    assert read_facts({"model_type": "mistral"}).window == 4096
    assert read_facts({"model_type": "mistral", "sliding_window": None}).window is None
    assert read_facts({"model_type": "mistral", "sliding_window": 0}).window is None
    assert read_facts({"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 4096}).window is None


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        (None, 4096),
        ({"rope_type": "default"}, 4096),
        ({"rope_type": "llama3", "factor": 8.0}, 4096),
        ({"rope_type": "linear", "factor": 8.0}, 32768),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}, 16384),
        ({"rope_type": "longrope", "factor": 32.0}, 4096),
    ],
)
def test_the_models_length_includes_its_rope_scaling(rope: Any, length: int) -> None:
    """Some kinds multiply the stated length, others already include it."""
    assert (
        read_facts({"model_type": "llama", "max_position_embeddings": 4096, "rope_scaling": rope}).max_length == length
    )


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_the_dtype_has_two_names(name: str) -> None:
    """Old and new files name it differently."""
    assert read_facts({"model_type": "llama", name: "torch.float16"}).dtype == "float16"


def test_an_adapter_names_its_base() -> None:
    """A LoRA adapter's file leads to the model it belongs to."""
    with pytest.raises(InputError, match="org/base"):
        read_facts({"peft_type": "LORA", "base_model_name_or_path": "org/base"})


def test_an_old_vision_model_keeps_its_text_model_at_the_top() -> None:
    """Files from before text_config state the language model flat; the rest follows its text type."""
    flat = {"model_type": "qwen2_vl", "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}
    facts = read_facts({**flat, "hidden_size": 3584, "vision_config": {"depth": 32}})
    assert (facts.model_type, facts.layers, facts.kv_heads, facts.head_dim) == ("qwen2_vl_text", 28, 4, 128)


def test_an_empty_text_config_is_all_default() -> None:
    """What a nested file leaves out has the text type's defaults."""
    facts = read_facts({"model_type": "gemma3", "text_config": {}})
    assert (facts.model_type, facts.layers, facts.window) == ("gemma3_text", 26, 4096)


@pytest.mark.parametrize(
    ("file", "types"),
    [
        ({"model_type": "gemma3_text", "sliding_window_pattern": 3}, "ssfssf"),
        ({"model_type": "cohere2", "sliding_window_pattern": 2}, "sfsfsf"),
        ({"model_type": "cohere2"}, "sssfss"),
        ({"model_type": "qwen3_next", "full_attention_interval": 3}, "llfllf"),
        ({"model_type": "qwen3_next"}, "lllfll"),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 0}, "ssssss"),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 4}, "ffffss"),
        ({"model_type": "gemma3_text", "layer_types": ["full_attention"] * 6}, "ffffff"),
        ({"model_type": "llama"}, None),
    ],
)
def test_layer_types_may_be_a_period(file: dict[str, Any], types: str | None) -> None:
    """Files without a list state a period, an interval, a first layer, or follow their type."""
    found = layer_types(read_facts({**file, "num_hidden_layers": 6}))
    assert (None if found is None else "".join(kind[0] for kind in found)) == types


def test_a_window_on_some_layers_of_qwen_is_refused() -> None:
    """The engine serves Qwen2 and Qwen3 with a window on no layer; so does the arithmetic."""
    mixed = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20}
    with pytest.raises(InputError, match="use_sliding_window"):
        size(mixed, EngineOptions(max_model_len=8192), 2**30)
