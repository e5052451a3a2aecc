"""What vLLM 0.32 calls its metrics, and where the embedded engine has their values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from exporter.demo.engine import DemoEngine
from exporter.demo.tally import Buckets, Tally


@dataclass(frozen=True, slots=True)
class Family:
    """One gauge or counter: its values by the value of `label`, or under "" where it has no label of its own."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    values: Callable[[DemoEngine], Mapping[str, float]]
    label: str | None = None


def _gauge(name: str, text: str, value: Callable[[DemoEngine], float]) -> Family:
    return Family(name, "gauge", text, lambda engine: {"": value(engine)})


def _counter(name: str, text: str, value: Callable[[DemoEngine], float]) -> Family:
    return Family(name, "counter", text, lambda engine: {"": value(engine)})


def _zero(name: str, text: str) -> Family:
    """What this engine never does and vLLM's page shows all the same."""
    return _counter(name, text, lambda _: 0)


def _waiting_by_reason(engine: DemoEngine) -> Mapping[str, float]:
    return {"capacity": engine.waiting, "deferred": 0}


def _sleep_state(engine: DemoEngine) -> Mapping[str, float]:
    level = engine.sleep_level
    return {"awake": level == 0, "weights_offloaded": level == 1, "discard_all": level == 2}


def _prompt_by_source(engine: DemoEngine) -> Mapping[str, float]:
    cached = engine.tally.prompt_tokens_cached
    return {
        "local_compute": engine.tally.prompt_tokens - cached,
        "local_cache_hit": cached,
        "external_kv_transfer": 0,
    }


def _cached_by_source(engine: DemoEngine) -> Mapping[str, float]:
    return dict.fromkeys(("device", "host", "p2p", "disk", "external_unspecified"), 0) | {"device": engine.prefix_hits}


FAMILIES = (
    *(
        _zero(f"estimated_{what}_per_gpu", f"Estimated number of {text} (for Model Flops Utilization calculations).")
        for what, text in (
            ("flops", "floating point operations per GPU"),
            ("read_bytes", "bytes read from memory per GPU"),
            ("write_bytes", "bytes written to memory per GPU"),
        )
    ),
    _gauge("num_requests_running", "Number of requests in model execution batches.", lambda e: e.running),
    _gauge("num_requests_waiting", "Number of requests waiting to be processed.", lambda e: e.waiting),
    Family(
        "num_requests_waiting_by_reason",
        "gauge",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
        "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "
        "Sum of all reasons equals vllm:num_requests_waiting.",
        _waiting_by_reason,
        "reason",
    ),
    Family(
        "engine_sleep_state",
        "gauge",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        _sleep_state,
        "sleep_state",
    ),
    _gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", lambda e: e.usage),
    _counter(
        "prefix_cache_queries",
        "Prefix cache queries, in terms of number of queried tokens.",
        lambda e: e.prefix_queries,
    ),
    _counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", lambda e: e.prefix_hits),
    *(
        _zero(f"{cache}_{name}", f"{text} cache {name}{where}, in terms of number of {how} {what}.")
        for cache, text, where, what in (
            ("external_prefix_cache", "External prefix", " from KV connector cross-instance cache sharing", "tokens"),
            ("mm_cache", "Multi-modal", "", "items"),
        )
        for name, how in (("queries", "queried"), ("hits", "cached"))
    ),
    _counter("num_preemptions", "Cumulative number of preemption from the engine.", lambda e: e.tally.preemptions),
    _counter("prompt_tokens", "Number of prefill tokens processed.", lambda e: e.tally.prompt_tokens),
    Family("prompt_tokens_by_source", "counter", "Number of prompt tokens by source.", _prompt_by_source, "source"),
    _counter(
        "prompt_tokens_cached",
        "Number of cached prompt tokens (local + external).",
        lambda e: e.tally.prompt_tokens_cached,
    ),
    Family(
        "prompt_tokens_cached_by_source",
        "counter",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), "
        "disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to "
        "vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        _cached_by_source,
        "source",
    ),
    _counter("generation_tokens", "Number of generation tokens processed.", lambda e: e.tally.generation_tokens),
    Family(
        "request_success",
        "counter",
        "Count of successfully processed requests.",
        lambda e: e.tally.finished,
        "finished_reason",
    ),
)

REJECTIONS = "Number of admission attempts rejected by a queue limit, by reason."
"""`admission_rejections` is the server's, not an engine's: it has no `engine` label."""

CACHE_CONFIG = "Information of the LLMEngine CacheConfig"

HISTOGRAMS: tuple[tuple[str, str, Callable[[Tally], Buckets]], ...] = (
    ("request_prompt_tokens", "Number of prefill tokens processed.", lambda t: t.prompt_lengths),
    ("request_generation_tokens", "Number of generation tokens processed.", lambda t: t.generation_lengths),
    ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", lambda t: t.iteration_tokens),
    (
        "request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        lambda t: t.longest_generations,
    ),
    ("request_params_n", "Histogram of the n request parameter.", lambda t: t.choices),
    ("request_params_max_tokens", "Histogram of the max_tokens request parameter.", lambda t: t.max_tokens_params),
    ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", lambda t: t.first_token),
    ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", lambda t: t.inter_token),
    (
        "request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        lambda t: t.per_output_token,
    ),
    ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", lambda t: t.whole),
    ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", lambda t: t.queue),
    ("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", lambda t: t.inference),
    ("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", lambda t: t.prefill),
    ("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", lambda t: t.decode),
    (
        "request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
        lambda t: t.request_preemptions,
    ),
    (
        "request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        lambda t: t.prefill_computed,
    ),
)

CACHE_CONFIG_LABELS: Mapping[str, str] = {
    "_block_size_resolved": "True",
    "cache_dtype": "auto",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_offloading_backend": "native",
    "kv_sharing_fast_prefill": "False",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_ssm_cache_dtype": "float32",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "replayssm_buffer_len": "16",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "True",
    **dict.fromkeys(
        (
            "cache_hit_alignment_tokens", "effective_attention_block_size", "hash_block_size", "kv_cache_layout",
            "kv_cache_memory_bytes", "kv_offloading_size", "mamba_block_size", "mamba_page_size_padded",
            "num_cpu_blocks", "num_gpu_blocks_override", "prefix_match_unit", "skip_page_size_padded",
            "sliding_window",
        ),
        "None",
    ),
}  # fmt: skip
"""The labels of `cache_config_info` that do not depend on the engine; "None" is spelt out, as vLLM does."""
