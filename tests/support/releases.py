"""Pages of older vLLM releases, rebuilt from the names and labels each used; not recordings.

They are written by prometheus_client, as vLLM's are. The names come from vLLM's own sources of the time
(`vllm/engine/metrics.py` for V0, `vllm/v1/metrics/loggers.py` for V1) and its documentation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from exporter.capacity import capacity_of
from exporter.reading import EngineReading

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 4096)


@dataclass(frozen=True)
class Release:
    """What a release shows: its metric names without prefix, and the labels they bear."""

    engine_label: bool
    gauges: tuple[str, ...]
    counters: tuple[str, ...]
    histograms: tuple[str, ...]
    cache: Mapping[str, str] = field(default_factory=dict)
    sleep_state: bool = False
    waiting_by_reason: bool = False


_V0_CACHE = {
    "block_size": "16",
    "cache_dtype": "auto",
    "enable_prefix_caching": "False",
    "gpu_memory_utilization": "0.9",
    "num_cpu_blocks": "2048",
    "num_gpu_blocks": "27000",
    "num_gpu_blocks_override": "None",
    "sliding_window": "None",
    "swap_space_bytes": "4294967296",
}
_V0_HISTOGRAMS = (
    "time_to_first_token_seconds",
    "time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_params_best_of",
    "request_params_n",
)
_V1_HISTOGRAMS = (
    "request_prompt_tokens",
    "request_generation_tokens",
    "iteration_tokens_total",
    "request_max_num_generation_tokens",
    "request_params_n",
    "request_params_max_tokens",
    "time_to_first_token_seconds",
    "e2e_request_latency_seconds",
)
_COUNTERS = ("num_preemptions", "prompt_tokens", "generation_tokens")
_LOAD = ("num_requests_running", "num_requests_waiting")
_V1_CACHE = {**_V0_CACHE, "num_cpu_blocks": "None", "enable_prefix_caching": "True"}

RELEASES: Mapping[str, Release] = {
    "0.6": Release(
        engine_label=False,
        gauges=(*_LOAD, "num_requests_swapped", "gpu_cache_usage_perc", "cpu_cache_usage_perc"),
        counters=_COUNTERS,
        histograms=_V0_HISTOGRAMS,
        cache=_V0_CACHE,
    ),
    "0.8": Release(
        engine_label=False,
        gauges=(*_LOAD, "gpu_cache_usage_perc"),
        counters=(*_COUNTERS, "gpu_prefix_cache_queries", "gpu_prefix_cache_hits"),
        histograms=_V1_HISTOGRAMS,
        cache={**_V1_CACHE, "num_gpu_blocks": "None"},
    ),
    "0.10": Release(
        engine_label=True,
        gauges=(*_LOAD, "gpu_cache_usage_perc", "kv_cache_usage_perc"),
        counters=(
            *_COUNTERS,
            "gpu_prefix_cache_queries",
            "gpu_prefix_cache_hits",
            "prefix_cache_queries",
            "prefix_cache_hits",
        ),
        histograms=_V1_HISTOGRAMS,
        cache=_V1_CACHE,
    ),
    "0.11": Release(
        engine_label=True,
        gauges=(*_LOAD, "kv_cache_usage_perc"),
        counters=(*_COUNTERS, "prefix_cache_queries", "prefix_cache_hits"),
        histograms=_V1_HISTOGRAMS,
        cache=_V1_CACHE,
    ),
    "0.16": Release(
        engine_label=True,
        gauges=(*_LOAD, "kv_cache_usage_perc"),
        counters=(*_COUNTERS, "prefix_cache_queries", "prefix_cache_hits"),
        histograms=(*_V1_HISTOGRAMS, "request_prefill_kv_computed_tokens"),
        cache={**_V1_CACHE, "kv_cache_memory_bytes": "None", "kv_offloading_size": "None"},
        sleep_state=True,
    ),
    "0.20": Release(
        engine_label=True,
        gauges=(*_LOAD, "kv_cache_usage_perc"),
        counters=(*_COUNTERS, "prefix_cache_queries", "prefix_cache_hits", "prompt_tokens_cached"),
        histograms=(*_V1_HISTOGRAMS, "request_prefill_kv_computed_tokens"),
        cache={**_V1_CACHE, "kv_cache_memory_bytes": "None", "kv_offloading_size": "None"},
        sleep_state=True,
        waiting_by_reason=True,
    ),
}


def page_of(version: str) -> str:
    """The page of a release: ratios 0.25 (old names 0.75), loads 3, counters 40, three requests in each histogram."""
    release = RELEASES[version]
    registry = CollectorRegistry()
    names = ["model_name", "engine"] if release.engine_label else ["model_name"]
    values = [MODEL, "0"] if release.engine_label else [MODEL]
    for name in release.gauges:
        value = 3.0 if name in _LOAD or name == "num_requests_swapped" else 0.75 if name.startswith("gpu") else 0.25
        Gauge(f"vllm:{name}", name, names, registry=registry).labels(*values).set(value)
    for name in release.counters:
        Counter(f"vllm:{name}", name, names, registry=registry).labels(*values).inc(40)
    finished = Counter("vllm:request_success", "d", [*names, "finished_reason"], registry=registry)
    finished.labels(*values, "stop").inc(2)
    finished.labels(*values, "length").inc(1)
    for name in release.histograms:
        histogram = Histogram(f"vllm:{name}", name, names, buckets=_LENGTHS, registry=registry)
        for value in (7, 70, 700):
            histogram.labels(*values).observe(value)
    cache = {**release.cache, "engine": "0"} if release.engine_label else release.cache
    Gauge("vllm:cache_config_info", "d", list(cache), registry=registry).labels(**cache).set(1)
    if release.sleep_state:
        sleep = Gauge("vllm:engine_sleep_state", "d", [*names, "sleep_state"], registry=registry)
        for state, value in (("awake", 0), ("weights_offloaded", 1), ("discard_all", 0)):
            sleep.labels(*values, state).set(value)
    if release.waiting_by_reason:
        waiting = Gauge("vllm:num_requests_waiting_by_reason", "d", [*names, "reason"], registry=registry)
        waiting.labels(*values, "capacity").set(2)
        waiting.labels(*values, "deferred").set(1)
    return generate_latest(registry).decode()


def usage_names(reading: EngineReading) -> str:
    """What the KV usage is called."""
    return reading.names["kv_usage"].removeprefix("vllm:")


def pool_told(reading: EngineReading) -> str:
    """Which figure of the pool's size is on the page, the best there is."""
    tokens, rule = capacity_of(reading.cache, None, None).tokens, capacity_of(reading.cache, None, None).tokens_rule
    return {"reported": "tokens", "blocks": "blocks"}.get(rule or "", "–") if tokens else "–"


FACTS: tuple[tuple[str, Callable[[EngineReading], str | bool]], ...] = (
    ("KV usage, under", usage_names),
    ("size of the pool, in", pool_told),
    ("running, waiting", lambda reading: reading.running is not None and reading.waiting is not None),
    ("why requests wait", lambda reading: bool(reading.waiting_by_reason)),
    ("swapped requests, CPU cache", lambda reading: reading.swapped is not None),
    ("preemptions", lambda reading: reading.preemptions is not None),
    ("preemptions of each request", lambda reading: reading.request_preemptions is not None),
    ("steps and their tokens", lambda reading: reading.iteration_tokens is not None),
    ("lengths of prompts and outputs", lambda reading: reading.generation_lengths is not None),
    ("lengths asked for", lambda reading: reading.max_tokens_params is not None),
    ("prefix cache", lambda reading: reading.prefix_queries is not None),
    ("prompt tokens from the cache", lambda reading: reading.prompt_tokens_cached is not None),
    ("prompt tokens computed by prefills", lambda reading: reading.prefill_computed_tokens is not None),
    ("asleep or awake", lambda reading: reading.sleep_state is not None),
)
"""What a page may tell, and whether it does."""


def facts_table(readings: Mapping[str, EngineReading]) -> str:
    """Which release tells what, in Markdown."""

    def cell(told: str | bool) -> str:
        return (
            f"`{told}`" if isinstance(told, str) and "_" in told else str(told) if isinstance(told, str) else "–✓"[told]
        )

    rows = [["", *readings], ["---"] * (len(readings) + 1)]
    rows += [[name, *(cell(tells(reading)) for reading in readings.values())] for name, tells in FACTS]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
