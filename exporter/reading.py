"""What one tick saw: the values that pass from the sources to everything right of them.

Every concept that was not there is `None`, never zero. Times are seconds of one monotonic clock,
taken when the source answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST = 2.0**53
"""Beyond it a float no longer holds every whole number: no count, size or length that is told of is real there."""


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
    """`awake`, the level of sleep that the page names, or `asleep` where it names none."""
    kv_capacity_bytes: float | None = None
    """Size of the KV pool in bytes, where the page tells it (no released vLLM up to 0.32 does)."""
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


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One GPU, or one MIG slice of a GPU, as one tick saw it. Memory in bytes.

    `used` excludes `reserved` where the driver tells them apart (memory v2); otherwise `reserved` is absent
    and counted in `used`. `free` is what the next allocation can take. On a `unified` part, which has no
    memory of its own, `total` and `free` are the machine's and `used` is what processes hold on the GPU.
    """

    time: float
    index: int
    """NVML's index: PCI order among the GPUs this process can see, which need not be CUDA's order."""
    uuid: str
    """`GPU-…` or `MIG-…`: the only name that means the same to NVML, CUDA and Kubernetes."""
    name: str | None = None
    mig_index: int | None = None
    """Which slice of GPU `index` this is; absent on a whole GPU."""
    parent_uuid: str | None = None
    """The GPU a MIG slice belongs to; absent on a whole GPU."""
    total: int | None = None
    used: int | None = None
    free: int | None = None
    reserved: int | None = None
    this_process: int | None = None
    """Held by the processes of the vLLM server."""
    other_processes: int | None = None
    """Held by processes that are known not to be the server's."""
    unattributed: int | None = None
    """`used` less the two above: whose it is cannot be told from here."""
    unified: bool = False
    rule: str | None = None
    """By which rule it was taken for the server's: `configured`, `pod_resources`, …, `all_visible`."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Field → why it is absent: `not_supported`, `no_permission`, `gpu_lost`, `pid_namespace`, …"""

    @property
    def gpu(self) -> str:
        """The value of the `gpu` label: `0`, or `0:1` for slice 1 of GPU 0."""
        return str(self.index) if self.mig_index is None else f"{self.index}:{self.mig_index}"


@dataclass(frozen=True, slots=True)
class Pressure:
    """PSI of memory: the share of time (0..1) in which some tasks, or all of them, stood still for want of it."""

    some_10s: float | None = None
    some_60s: float | None = None
    full_10s: float | None = None
    full_60s: float | None = None
    some_stalled_seconds: float | None = None
    full_stalled_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class HostReading:
    """Host memory of the vLLM server as one tick saw it, in bytes; no limit is `limit=None`, never 0.

    `scope` says whose memory it is: the `container` the server runs in, its `pod`, its `process` tree
    (resident memory, no limit known), or, when the server cannot be seen at all, nobody's (`machine`):
    then only the `machine_…` fields are there. `rule` is the sentence for people.
    """

    time: float
    scope: str
    rule: str
    current: int | None = None
    limit: int | None = None
    swap: int | None = None
    swap_limit: int | None = None
    anon: int | None = None
    shmem: int | None = None
    file: int | None = None
    working_set: int | None = None
    """`current` less inactive file cache: what the kubelet evicts by."""
    committed: int | None = None
    """`current` less all page cache and slab that the kernel can give back: what an OOM kill is decided by."""
    oom_kills: int | None = None
    """Kills seen since this process started, over restarts of the server's container."""
    oom_kills_inferred: int | None = None
    """Those of `oom_kills` that were deduced since the container was gone before its counter could be read."""
    ooms: int | None = None
    """`memory.events` `oom`: how often reclaim failed at the limit; a kill usually follows."""
    server_starts: int | None = None
    """Times the server's main process was seen to start since this process did, the first sight included."""
    limit_hits: int | None = None
    """`memory.events` `max`: how often the limit was run into and reclaim was tried."""
    pressure: Pressure | None = None
    dev_shm_used: int | None = None
    dev_shm_limit: int | None = None
    machine_total: int | None = None
    machine_available: int | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
