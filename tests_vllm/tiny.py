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
