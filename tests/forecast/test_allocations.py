"""What may be allocated next, from a model's config."""

import pytest

from exporter.forecast.allocations import next_allocations

MIB = 2**20
LLAMA_8B = {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336}
LLAMA_70B = {"vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672}


def test_logits_are_tokens_times_vocabulary_times_four() -> None:
    """A chunk of 8,192 tokens of Llama 3 has 4,202,692,608 bytes of logits, a batch of 256 sequences 131,334,144."""
    found = next_allocations(LLAMA_8B, max_num_batched_tokens=8192, max_num_seqs=256)
    assert found == {
        "logits_chunk": 1024 * 128256 * 2,
        "logits": 8192 * 128256 * 4,
        "sampler": 256 * 128256 * 4,
    }


def test_what_is_not_known_is_left_out() -> None:
    """No vocabulary, no logits; no batch size, only the fixed chunk."""
    assert next_allocations({}) == {}
    assert next_allocations({"vocab_size": None, "hidden_size": "x"}, max_num_batched_tokens=8192) == {}
    assert set(next_allocations(LLAMA_8B)) == {"logits_chunk"}


def test_a_nested_text_config_is_used() -> None:
    """Multimodal and hybrid models keep the text model's sizes one level down."""
    hybrid = {"model_type": "qwen3_next_vl", "vocab_size": 1, "text_config": {"vocab_size": 151936}}
    assert next_allocations(hybrid)["logits_chunk"] == 1024 * 151936 * 2


def test_an_adapter_widens_the_reserve_with_the_batched_tokens() -> None:
    """Rank 8 on a 70B over 4 GPUs: proportional to tokens, and the widest projection on one GPU decides."""
    small, large = (
        next_allocations(LLAMA_70B, max_num_batched_tokens=tokens, tensor_parallel_size=4, lora_rank=8)
        for tokens in (2048, 16384)
    )
    assert large["lora_activations"] == 8 * small["lora_activations"]
    assert large["lora_activations"] == 16384 * (2 * 28672 // 4 * 2 + 8 * 2 * 4)
    assert "lora_activations" not in next_allocations(LLAMA_70B, max_num_batched_tokens=2048)


@pytest.mark.parametrize(("vocabulary", "mib"), [(154880, 302.5), (128256, 250.5), (32000, 62.5)])
def test_one_chunk_of_prompt_logprobs(vocabulary: int, mib: float) -> None:
    """1,024 tokens in a 2-byte type: 302.5 MiB for a vocabulary of 154,880, which vLLM was seen to ask as 304 MiB."""
    assert next_allocations({"vocab_size": vocabulary})["logits_chunk"] == mib * MIB
