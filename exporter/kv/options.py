"""What a person or a running engine decides about the KV cache: vLLM's memory flags, as one value."""

from dataclasses import dataclass, field

DEFAULT_BLOCK_SIZE = 16
DEFAULT_BATCHED_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """vLLM's flags that change the arithmetic; names and meanings are vLLM's own.

    `max_model_len` in tokens. `dtype` overrides the model's own (`--dtype`). `mamba_ssm_cache_dtype` is float32 unless
    told otherwise: it is the safe choice for a plan, since a state kept in fewer bits only leaves more room.
    `speculative_tokens` is `num_speculative_tokens` of the speculative configuration, `draft_layers` the attention
    layers that an EAGLE or MTP draft adds to the same pool.
    """

    max_model_len: int
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    max_num_batched_tokens: int = DEFAULT_BATCHED_TOKENS
    async_scheduling: bool = False
    enable_prefix_caching: bool = True
    disable_hybrid_kv_cache_manager: bool = False
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "float32"
    speculative_tokens: int = 0
    speculative_method: str | None = None
    draft_layers: int = 0
    kv_cache_dtype_skip_layers: tuple[str, ...] = field(default_factory=tuple)
    num_gpu_blocks_override: int | None = None

    @property
    def lookahead_tokens(self) -> int:
        """Slots that a draft writes ahead of the tokens the model is scheduled for."""
        return self.speculative_tokens if self.speculative_method in ("eagle", "eagle3", "mtp", "draft_model") else 0

    @property
    def in_flight_tokens(self) -> int:
        """Tokens scheduled but not yet settled: one batch per step that can run at once."""
        batches = self.pipeline_parallel_size
        if self.async_scheduling:
            batches += 1
        return batches * self.max_num_batched_tokens
