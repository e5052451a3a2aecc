"""Snapshots made by hand: one in which everything is known."""

from exporter.forecast.assessment import Assessment
from exporter.forecast.device import DeviceAssessment
from exporter.forecast.host import HostAssessment
from exporter.reading import CacheConfig, DeviceReading, EngineReading, HostReading, Pressure
from exporter.snapshot import (
    Capacity,
    DeviceStatus,
    EngineStatus,
    Headroom,
    HostStatus,
    Snapshot,
    SourceHealth,
)

GIB = 2**30


def full_engine(engine: str = "0", server: str = "", model_name: str = "meta-llama/Llama-3.1-8B") -> EngineStatus:
    """An engine of which everything is known."""
    reading = EngineReading(
        time=100.0,
        model_name=model_name,
        engine=engine,
        kv_usage=0.42,
        running=12.0,
        waiting=3.0,
        waiting_by_reason={"capacity": 3.0, "deferred": 0.0},
        swapped=0.0,
        sleep_state="awake",
        preemptions=7.0,
        finished=90.0,
        cache=CacheConfig(block_size=16, num_gpu_blocks=8193, kv_cache_size_tokens=131_088),
    )
    assessment = Assessment(
        time=100.0,
        model_name=model_name,
        engine=engine,
        state="predicted",
        reason="preemption within 60 s is more likely than not",
        probability={15.0: 0.1, 30.0: 0.3, 60.0: 0.7, 120.0: 0.8},
        predicted=True,
        time_to_exhaustion_seconds=41.5,
        demand_ratio={(60.0, 0.5): 0.97, (60.0, 0.9): 1.12},
        offered_load_ratio=1.05,
        driver="burst_concurrency",
        levers={"kv_cache_dtype=fp8": 2.0, "max_num_seqs": 0.8},
        preemptions_per_second=0.1,
        preemptions_per_finished_request=0.02,
        recomputed_tokens_per_second=33.0,
        used_ratio_peak=0.6,
        blocks_per_request=51.0,
        forecasts={"hit": 3, "miss": 1, "false_alarm": 2, "correct_quiet": 40},
        calibration_error=0.04,
    )
    capacity = Capacity(
        tokens=131_088,
        tokens_rule="reported",
        usable_blocks=8192,
        bytes=16 * GIB,
        analytic_tokens=131_088,
        analytic_bytes=16 * GIB,
        bytes_per_token=131_072.0,
        bytes_per_block=2_097_152,
        weight_bytes=15 * GIB,
        max_model_len=8192,
        calibration_ratio=1.0,
    )
    headroom = Headroom(blocks=4752.0, tokens=76_032.0, bytes=9.28 * GIB, requests=93.0)
    return EngineStatus(server, reading, capacity, headroom, 3440.0, assessment)


def full_device() -> DeviceStatus:
    """A GPU of which everything is known."""
    reading = DeviceReading(
        time=100.0,
        index=0,
        uuid="GPU-1b2c",
        name="NVIDIA L4",
        total=24 * GIB,
        used=21 * GIB,
        free=2 * GIB,
        reserved=1 * GIB,
        this_process=20 * GIB,
        other_processes=1 * GIB,
        unattributed=0,
        rule="pod_resources",
    )
    risk = DeviceAssessment(
        time=100.0,
        gpu="0",
        uuid="GPU-1b2c",
        state="ok",
        reason="steady",
        headroom_bytes=2 * GIB,
        growth_bytes_per_second=1000.0,
        probability={60.0: 0.01},
        predicted=False,
        time_to_exhaustion_seconds=7200.0,
        next_allocation_bytes={"logits": 1_000_000_000, "sampler": 500_000_000},
        grower="neighbour",
        over_budget_bytes=-(10**9),
        next_start_bytes=4 * GIB,
    )
    return DeviceStatus(reading, risk)


def full_host() -> HostStatus:
    """A container of which everything is known."""
    reading = HostReading(
        time=100.0,
        scope="container",
        rule="the server's own control group",
        current=9 * GIB,
        limit=32 * GIB,
        swap=0,
        swap_limit=0,
        anon=6 * GIB,
        shmem=1 * GIB,
        file=2 * GIB,
        working_set=8 * GIB,
        committed=7 * GIB,
        oom_kills=0,
        oom_kills_inferred=0,
        server_starts=1,
        ooms=0,
        limit_hits=0,
        pressure=Pressure(0.0, 0.0, 0.0, 0.0),
        machine_total=256 * GIB,
        machine_available=100 * GIB,
        dev_shm_used=1 * GIB,
        dev_shm_limit=8 * GIB,
    )
    risk = HostAssessment(
        time=100.0,
        scope="container",
        state="ok",
        reason="steady",
        headroom_bytes=25 * GIB,
        growth_bytes_per_second=1000.0,
        probability={60.0: 0.0},
        predicted=False,
        time_to_exhaustion_seconds=7200.0,
        offload_pending_bytes=0,
    )
    return HostStatus(reading, risk)


def full_snapshot(engines: tuple[EngineStatus, ...] | None = None) -> Snapshot:
    """A tick in which every source answered, but one that is down."""
    up = SourceHealth("vllm", "", True, "ok", "", 0.012, 99.9, {"kv_usage": "vllm:kv_cache_usage_perc"})
    down = SourceHealth("model_config", "", False, "not_found", "no config.json was found", 0.001, None)
    return Snapshot(
        time=100.0,
        wall_time=1_795_980_000.0,
        duration_seconds=0.015,
        ticks=42,
        engines=(full_engine(),) if engines is None else engines,
        devices=(full_device(),),
        host=full_host(),
        sources=(up, down),
    )
