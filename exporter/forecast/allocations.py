"""What a vLLM server may allocate next outside its KV pool, from the model's config.

The pool is allocated once. What comes later is activations, and the largest of them have the width of the vocabulary.
vLLM measures its peak at the start with a full batch, so most of it is within the budget; what that run leaves out is
logits for whole prompts (`prompt_logprobs`, `echo`) and the activations of adapters.
"""

from collections.abc import Mapping
from typing import Any

LOGITS_BYTES = 4
"""Logits are sampled from in float32."""
LOGPROB_CHUNK_TOKENS = 1024
"""Tokens whose logits vLLM gathers at once for prompt logprobs, in the model's own 2-byte type."""


def next_allocations(
    config: Mapping[str, Any],
    *,
    max_num_batched_tokens: int | None = None,
    max_num_seqs: int | None = None,
    tensor_parallel_size: int = 1,
    lora_rank: int | None = None,
) -> dict[str, int]:
    """Bytes by what they are for, on one GPU; an entry whose inputs are not known is left out.

    `logits`: a whole prefill chunk's, tokens × vocabulary × 4. `logits_chunk`: the part of it that vLLM gathers at
    once, 1,024 tokens × vocabulary × 2. `sampler`: the largest decode batch's, sequences × vocabulary × 4.
    `lora_activations`: tokens × (widest adapted projection on this GPU × 2 + rank × 2 slices × 4).
    """
    text = config.get("text_config")
    values = {**config, **text} if isinstance(text, Mapping) else config
    found: dict[str, int] = {}
    vocabulary = _positive(values, "vocab_size")
    if vocabulary:
        found["logits_chunk"] = LOGPROB_CHUNK_TOKENS * vocabulary * 2
        if max_num_batched_tokens:
            found["logits"] = max_num_batched_tokens * vocabulary * LOGITS_BYTES
        if max_num_seqs:
            found["sampler"] = max_num_seqs * vocabulary * LOGITS_BYTES
    if lora_rank and max_num_batched_tokens:
        hidden, inner = _positive(values, "hidden_size"), _positive(values, "intermediate_size")
        width = max(hidden or 0, 2 * (inner or 0) // tensor_parallel_size)
        if width:
            found["lora_activations"] = max_num_batched_tokens * (width * 2 + lora_rank * 2 * LOGITS_BYTES)
    return found


def _positive(values: Mapping[str, Any], key: str) -> int | None:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
