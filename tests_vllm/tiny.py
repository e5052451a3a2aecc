"""Models so small that a CPU serves them: a `config.json` and a tokenizer; vLLM invents the weights itself."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VOCABULARY = 512

LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": VOCABULARY,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def make_model(directory: Path, config: Mapping[str, Any] = LLAMA, **changes: Any) -> Path:
    """Write a model to `directory` and return it; `changes` replace keys of `config`, `None` removes one."""
    directory.mkdir(parents=True, exist_ok=True)
    keys = {name: value for name, value in {**config, **changes}.items() if value is not None}
    vocabulary = int(keys.get("vocab_size", VOCABULARY))
    files = {
        "config.json": keys,
        "tokenizer.json": _tokenizer(vocabulary),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "w0",
            "bos_token": "w1",
            "eos_token": "w2",
            "model_max_length": keys.get("max_position_embeddings", 4096),
        },
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return directory


def make_adapter(directory: Path, rank: int = 8) -> Path:
    """Write a LoRA adapter of `LLAMA` that changes nothing: all its weights are zero."""
    directory.mkdir(parents=True, exist_ok=True)
    hidden = int(LLAMA["hidden_size"])
    shapes = {"lora_A": [rank, hidden], "lora_B": [hidden, rank]}
    header: dict[str, Any] = {}
    size = 0
    for layer in range(int(LLAMA["num_hidden_layers"])):
        for part, shape in shapes.items():
            end = size + 4 * rank * hidden
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.{part}.weight"
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [size, end]}
            size = end
    text = json.dumps(header).encode()
    (directory / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny",
        "bias": "none",
        "r": rank,
        "lora_alpha": rank,
        "target_modules": ["q_proj"],
    }
    (directory / "adapter_config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    return directory


def _tokenizer(vocabulary: int) -> dict[str, Any]:
    """A tokenizer of whole words w0, w1, …: prompts are sent as token ids, so no text needs to mean anything."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {f"w{n}": n for n in range(vocabulary)}, "unk_token": "w0"},
    }
