"""What one tick saw: the values that pass from the sources to everything right of them.

Every concept that was not there is `None`, never zero. Times are seconds of one monotonic clock,
taken when the source answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Histogram:
    """A Prometheus histogram as it stands on the page.

    `bounds` are the upper bounds in rising order, the last one +Inf; `counts` are cumulative, one per
    bound. A histogram whose buckets are missing keeps `sum` and `count` and has empty tuples.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float
    count: float


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """The labels of `vllm:cache_config_info` that matter; "None" on the page is absent here."""

    block_size: int | None = None
    num_gpu_blocks: int | None = None
    kv_cache_size_tokens: int | None = None
    kv_cache_max_concurrency: float | None = None
    kv_cache_memory_bytes: int | None = None
    cache_dtype: str | None = None
    gpu_memory_utilization: float | None = None
    enable_prefix_caching: bool | None = None
    kv_offloading_gib: float | None = None
    num_gpu_blocks_override: int | None = None
    mamba_block_size: int | None = None
    mamba_cache_mode: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineReading:
    """One engine of one model, as one page showed it.

    Counters are the page's own running totals; whoever wants a rate guards against resets.
    `kv_usage` is a ratio 0..1 of blocks held by live requests. `waiting_by_reason` splits `waiting`
    (its parts are never added to it). `names` tells under which metric name each concept was found.
    """

    time: float
    model_name: str
    engine: str
    kv_usage: float | None = None
    running: float | None = None
    waiting: float | None = None
    waiting_by_reason: Mapping[str, float] = field(default_factory=dict)
    swapped: float | None = None
    cpu_kv_usage: float | None = None
    sleep_state: str | None = None
    """`awake`, or the level of sleep that the page names."""
    preemptions: float | None = None
    preemptions_kv_full: float | None = None
    """Preemptions for want of KV alone, where the page tells reasons apart."""
    prompt_tokens: float | None = None
    prompt_tokens_cached: float | None = None
    generation_tokens: float | None = None
    finished: float | None = None
    """Requests that ended, whatever the reason (`request_success_total` summed over reasons)."""
    finished_by_reason: Mapping[str, float] = field(default_factory=dict)
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    iteration_tokens: Histogram | None = None
    first_tokens: Histogram | None = None
    """`time_to_first_token_seconds`: its count is the number of sequences that left prefill."""
    prompt_lengths: Histogram | None = None
    generation_lengths: Histogram | None = None
    max_tokens_params: Histogram | None = None
    """`request_params_max_tokens`: what clients allowed, of finished requests."""
    max_generation_lengths: Histogram | None = None
    request_preemptions: Histogram | None = None
    prefill_computed_tokens: Histogram | None = None
    cache: CacheConfig | None = None
    names: Mapping[str, str] = field(default_factory=dict)
