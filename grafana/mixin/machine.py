"""Rows about the machine under an engine: its GPUs, its container, and the exporter beside it."""

from grafana.mixin.panels import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, Panel, Target, field, fields, stat, timeseries
from grafana.mixin.series import WHO, WHOSE_GPU, gpu_memory, memory, of_engine, of_pod
from grafana.mixin.thresholds import MEMORY_ALARM, Thresholds


def gpu() -> tuple[Panel, ...]:
    """What fills the GPU, and whether anything but KV grows."""
    colours = (PURPLE, RED, GREEN, BLUE, ORANGE, GREY, "#44444f")
    parts = gpu_memory()
    return (
        timeseries(
            "GPU memory, all of it",
            "The chosen GPUs together. Weights are estimated from the model's config; what vLLM holds beside weights and "
            "KV pool is activations, CUDA graphs and workspaces. The pool is reserved at the start: only the border "
            "between KV in use and KV free moves with the load.",
            tuple(Target(expr, name) for name, expr in parts.items()),
            unit="bytes",
            low=0,
            stack=True,
            width=16,
            height=10,
            overrides=tuple(field(name, color=colour) for name, colour in zip(parts, colours, strict=True)),
            empty="GPU not visible",
        ),
        timeseries(
            "GPU memory left against the next allocation",
            "Free memory outside the pool, and the largest plausible next allocation. Where the lines meet, one long "
            "prefill can end the engine.",
            (
                Target(of_pod("device_bytes"), f"free {WHOSE_GPU}"),
                Target(f"max without (what) ({of_pod('device_next_allocation_bytes')})", f"next {WHOSE_GPU}"),
            ),
            unit="bytes",
            low=0,
            width=8,
            height=10,
            empty="GPU not visible",
            overrides=(fields("^next", color=RED), fields("^free", color=GREEN)),
        ),
        timeseries(
            "Probability that the GPU runs out",
            "Within each horizon, from growth since warm-up, its noise and the next allocation; the worst GPU.",
            (
                Target(
                    f"max by (horizon_seconds) ({of_pod('oom_probability', risk='device')})",
                    "within {{horizon_seconds}} s",
                ),
            ),
            unit="percentunit",
            low=0,
            high=1,
            steps=((None, GREEN), (MEMORY_ALARM, RED)),
            limit=True,
            empty="GPU not visible",
        ),
        timeseries(
            "Growth outside the KV pool",
            "Steady growth of GPU memory since warm-up, and what processes other than the server hold. Growth is never "
            "KV: look for adapters, encoders, a neighbour or a leak.",
            (
                Target(of_pod("device_growth_bytes_per_second"), f"growth {WHOSE_GPU}"),
                Target(memory("other_processes"), f"neighbours {WHOSE_GPU}"),
            ),
            unit="Bps",
            low=0,
            soft=2.0**20,
            empty="warming up",
            overrides=(
                fields(
                    "^neighbours", unit="bytes", custom_axisPlacement="right", custom_axisSoftMax=2**30, color=ORANGE
                ),
            ),
        ),
    )


def host() -> tuple[Panel, ...]:
    """The container's memory against its limit."""
    kinds = "current|limit|anon|shmem|dev_shm_used|machine_total|machine_available"
    return (
        timeseries(
            "Host memory",
            "Of the server's container as its cgroup reports it, and of the machine. The kernel kills at the limit; file "
            "cache is given back before that, anon and shmem are not. KV offloaded to the host is shmem.",
            (Target(of_pod("host_memory_bytes", kind=f"~{kinds}"), "{{pod}} {{kind}}"),),
            unit="bytes",
            low=0,
            width=16,
            empty="host memory is not read",
            overrides=(
                fields(
                    "(limit|total)$", color=RED, custom_fillOpacity=0, custom_lineStyle={"fill": "dash", "dash": [6, 4]}
                ),
            ),
        ),
        stat(
            "OOM kills in the last hour",
            "Processes of the container that the kernel killed for want of memory.",
            (Target(f"sum(increase({of_pod('host_oom_kills_total')}[1h]))", "kills", instant=True),),
            unit="none",
            decimals=0,
            graph="none",
            width=4,
            height=8,
            steps=((None, GREEN), (1.0, RED)),
            empty="not visible",
        ),
        stat(
            "Container runs out in",
            "Expected time until the container reaches its memory limit.",
            (Target(f"min({of_pod('time_to_exhaustion_seconds', risk='host')})", "time", instant=True),),
            unit="s",
            graph="none",
            width=4,
            height=8,
            steps=((None, RED), (120.0, ORANGE), (600.0, GREEN)),
            empty="not in sight",
        ),
    )


def exporter(t: Thresholds) -> tuple[Panel, ...]:
    """Whether what is shown is fresh, and what it costs to know it."""
    return (
        timeseries(
            "Sources that answer",
            "1 while the last reading succeeded for all chosen pods. What a source that is down would tell is unknown, not "
            "zero.",
            (Target(f"min by (source) ({of_pod('source_up')})", "{{source}}"),),
            unit="none",
            low=0,
            high=1,
            decimals=0,
            width=6,
        ),
        timeseries(
            "Age of what it shows",
            f"Seconds since the last tick. From {t.stale_seconds} s on the exporter counts as stale.",
            (Target(f"max(time() - {of_pod('last_tick_timestamp_seconds')})", "oldest"),),
            unit="s",
            low=0,
            width=6,
            steps=((None, GREEN), (float(t.stale_seconds), RED)),
        ),
        timeseries(
            "Its own cost",
            "Seconds that the slowest tick takes, waiting for vLLM's page included, and the exporter's resident memory.",
            (
                Target(f"max({of_pod('tick_duration_seconds')})", "tick"),
                Target(f"max({of_pod('process_resident_memory_bytes', job='~.*vllm-headroom.*')})", "memory"),
            ),
            unit="s",
            low=0,
            width=6,
            overrides=(fields("^memory", unit="bytes", custom_axisPlacement="right"),),
        ),
        timeseries(
            "Engine's KV capacity over the arithmetic's",
            "1 when the model's config is read as the engine reads it. Off by more than a tenth, headroom in tokens and "
            "bytes is off by as much.",
            (Target(of_engine("kv_calibration_ratio"), WHO),),
            unit="none",
            decimals=2,
            low=0,
            width=6,
            steps=((None, GREEN),),
            empty="no config to compare with",
        ),
    )
