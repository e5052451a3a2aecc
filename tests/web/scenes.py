"""Every state of the world that the page must be able to tell, made by hand."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from exporter.forecast.assessment import Assessment, Driver, State
from exporter.forecast.device import DeviceAssessment
from exporter.forecast.host import HostAssessment
from exporter.history import History
from exporter.reading import DeviceReading, EngineReading, Histogram, HostReading
from exporter.snapshot import Capacity, DeviceStatus, EngineStatus, Headroom, HostStatus, Snapshot, SourceHealth

GIB = 2**30
NOW = 10_000.0
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
INF = math.inf

PROMPTS = Histogram((256.0, 512.0, 1024.0, 2048.0, 4096.0, INF), (120, 310, 480, 560, 590, 600), 412_000.0, 600.0)
OUTPUTS = Histogram((64.0, 128.0, 256.0, 512.0, 1024.0, INF), (60, 180, 390, 560, 598, 600), 139_000.0, 600.0)


@dataclass(frozen=True, slots=True)
class Scene:
    """A snapshot with the past that led to it."""

    snapshot: Snapshot
    history: History


@dataclass(frozen=True, slots=True)
class Mood:
    """What sets one state apart from the others."""

    state: State
    reason: str
    usage: float | None = 0.4
    running: float | None = 12.0
    waiting: float | None = 0.0
    chances: tuple[float, ...] = ()
    until: float | None = None
    demand: tuple[float, float] | None = None
    driver: Driver | None = "none"
    levers: Mapping[str, float] | None = None
    preempting: float = 0.0


LEVERS = {
    "kv_cache_dtype=fp8": 2.0,
    "gpu_memory_utilization=0.95": 1.11,
    "max_num_seqs=48": 0.83,
    "max_num_batched_tokens=2048": 1.0,
    "max_model_len=4096": 0.94,
}

MOODS: dict[State, Mood] = {
    "ok": Mood("ok", "no KV exhaustion in sight", 0.42, 14.0, 0.0, (0.0, 0.01, 0.02, 0.04), None, (0.45, 0.58)),
    "watch": Mood(
        "watch",
        "the probability within 60 s is above 0.30 and below the alarm's 0.60",
        0.71,
        31.0,
        2.0,
        (0.02, 0.14, 0.41, 0.55),
        95.0,
        (0.88, 1.06),
        "long_context",
        LEVERS,
    ),
    "predicted": Mood(
        "predicted",
        "the probability within 60 s has been above 0.60 for 2 s",
        0.83,
        44.0,
        6.0,
        (0.12, 0.46, 0.87, 0.95),
        41.5,
        (1.03, 1.21),
        "burst_concurrency",
        LEVERS,
    ),
    "exhausted": Mood(
        "exhausted",
        "the engine preempted requests for want of KV blocks within the last seconds",
        0.995,
        52.0,
        23.0,
        (0.99, 1.0, 1.0, 1.0),
        1.0,
        (1.31, 1.52),
        "prefill_spike",
        LEVERS,
        1.4,
    ),
    "stalled": Mood("stalled", "requests wait while none runs and no token is generated", 0.0, 0.0, 12.0),
    "asleep": Mood("asleep", "the engine sleeps at level 1", 0.0, 0.0, 0.0, driver=None),
    "unknown": Mood("unknown", "not enough readings yet for a forecast", 0.12, 2.0, 0.0, driver=None),
}


def engine(mood: Mood, number: str = "0", server: str = "", model: str = MODEL) -> EngineStatus:
    """An engine in one mood, of which everything else is known."""
    usable, usage = 8192, mood.usage
    free = None if usage is None else round((1 - usage) * usable)
    reading = EngineReading(
        time=NOW,
        model_name=model,
        engine=number,
        kv_usage=usage,
        running=mood.running,
        waiting=mood.waiting,
        waiting_by_reason={"capacity": mood.waiting or 0.0, "deferred": 0.0},
        preemptions=0.0,
        prompt_lengths=PROMPTS,
        generation_lengths=OUTPUTS,
    )
    horizons = (15.0, 30.0, 60.0, 120.0)
    demand = {}
    if mood.demand is not None and usage is not None:
        for horizon in horizons:
            part = min(1.0, horizon / 60.0)
            demand[horizon, 0.5] = usage + part * (mood.demand[0] - usage)
            demand[horizon, 0.9] = usage + part * (mood.demand[1] - usage)
    assessment = Assessment(
        time=NOW,
        model_name=model,
        engine=number,
        state=mood.state,
        reason=mood.reason,
        probability=dict(zip(horizons, mood.chances, strict=False)),
        predicted=mood.state in ("predicted", "exhausted"),
        time_to_exhaustion_seconds=mood.until,
        demand_ratio=demand,
        offered_load_ratio=mood.demand[0] if mood.demand else None,
        driver=mood.driver,
        levers=mood.levers or {},
        preemptions_per_second=mood.preempting,
        preemptions_per_finished_request=mood.preempting / 8,
        recomputed_tokens_per_second=900 * mood.preempting,
        used_ratio_peak=None if usage is None else min(1.0, usage + 0.05),
        blocks_per_request=58.0,
        forecasts={"hit": 7, "miss": 1, "false_alarm": 3, "correct_quiet": 212},
        calibration_error=0.04,
    )
    capacity = Capacity(
        tokens=131_072,
        tokens_rule="reported",
        usable_blocks=usable,
        bytes=16 * GIB,
        analytic_tokens=131_072,
        analytic_bytes=16 * GIB,
        bytes_per_token=131_072.0,
        bytes_per_block=2_097_152,
        weight_bytes=15 * GIB,
        max_model_len=8192,
        calibration_ratio=1.0,
    )
    headroom = Headroom()
    if free is not None:
        headroom = Headroom(float(free), 16.0 * free, 2_097_152.0 * free, float(free // 58))
    return EngineStatus(server, reading, capacity, headroom, None if free is None else usable - free, assessment)


def device(index: int = 0, total: int = 40, **risk: object) -> DeviceStatus:
    """A GPU on which one server and a small neighbour live; `total` in GiB."""
    reading = DeviceReading(
        time=NOW,
        index=index,
        uuid=f"GPU-1b2c3d4e-0000-0000-0000-00000000000{index}",
        name="NVIDIA A100-SXM4-40GB",
        total=total * GIB,
        used=(total - 3) * GIB,
        free=3 * GIB - 600 * 2**20,
        reserved=600 * 2**20,
        this_process=(total - 4) * GIB,
        other_processes=1 * GIB,
        unattributed=0,
    )
    assessment = DeviceAssessment(
        time=NOW,
        gpu=str(index),
        uuid=reading.uuid,
        state="ok",
        reason="steady with 2,472 MiB free",
        headroom_bytes=reading.free,
        growth_bytes_per_second=0.0,
        probability={60.0: 0.0, 600.0: 0.0, 3600.0: 0.01},
        predicted=False,
    )
    return DeviceStatus(reading, replace(assessment, **risk))  # type: ignore[arg-type]


def host() -> HostStatus:
    """A container that uses a quarter of its memory."""
    reading = HostReading(
        time=NOW, scope="container", rule="", current=17 * GIB, limit=64 * GIB, committed=15 * GIB, oom_kills=0
    )
    risk = HostAssessment(
        time=NOW,
        scope="container",
        state="ok",
        reason="50,176 MiB are left of the container's limit; steady",
        headroom_bytes=49 * GIB,
        limited_by="limit",
        growth_bytes_per_second=0.0,
        probability={3600.0: 0.0},
        predicted=False,
    )
    return HostStatus(reading, risk)


UP = (
    SourceHealth("vllm", "", True, "ok", "", 0.0071, NOW - 0.1),
    SourceHealth("nvml", "", True, "ok", "", 0.0006, NOW),
    SourceHealth("host", "", True, "ok", "", 0.0003, NOW),
)


def _past(engines: tuple[EngineStatus, ...], seconds: int, wave: Callable[[float, int], float | None]) -> History:
    """A history in which `wave` gives each engine's usage by its age in seconds and its place."""
    history = History()
    preempted = [0.0] * len(engines)
    for age in range(seconds, -1, -1):
        seen = []
        for place, status in enumerate(engines):
            usage = wave(float(age), place) if age else status.reading.kv_usage
            full = usage is not None and usage > 0.985
            preempted[place] += 2.0 if full and age % 3 == 0 else 0.0
            reading = replace(
                status.reading, kv_usage=usage, preemptions=preempted[place] if usage is not None else None
            )
            seen.append(replace(status, reading=reading))
        history.add(Snapshot(NOW - age, 0.0, 0.0, 0, tuple(seen)))
    return history


def _wave(ends: tuple[float, ...], calm: float = 0.35) -> Callable[[float, int], float | None]:
    """Usage that wanders around `calm` and goes to each engine's end within the last two minutes."""

    def usage(age: float, place: int) -> float | None:
        t = age + 37 * place
        wander = 0.08 * math.sin(t / 41) + 0.05 * math.sin(t / 13) + 0.02 * math.sin(t / 3)
        if 480 < t < 540:
            wander += 0.55 * math.sin(math.pi * (t - 480) / 60)
        rise: float = max(0.0, 1 - age / 120) ** 1.5
        return min(1.0, max(0.0, (calm + wander) * (1 - rise) + ends[place] * rise))

    return usage


def scene(*engines: EngineStatus, seconds: int = 900, calm: float = 0.35, **parts: object) -> Scene:
    """The engines with a GPU, a container and sources that are all well, unless `parts` says otherwise."""
    history = _past(engines, seconds, _wave(tuple(e.reading.kv_usage or 0.0 for e in engines), calm))
    snapshot = Snapshot(
        time=NOW,
        wall_time=1_796_000_000.0,
        duration_seconds=0.009,
        ticks=4711,
        engines=engines,
        devices=(device(),),
        host=host(),
        sources=UP,
    )
    return Scene(replace(snapshot, **parts), history)  # type: ignore[arg-type]


def _down() -> Scene:
    before = scene(engine(MOODS["ok"]))
    reason = "cannot connect to http://127.0.0.1:8000/metrics: connection refused"
    reading = EngineReading(time=NOW - 40, model_name=MODEL, engine="0")
    assessment = Assessment(NOW, MODEL, "0", "unknown", reason)
    gone = EngineStatus("", reading, Capacity(), Headroom(), None, assessment)
    for second in range(1, 41):
        before.history.add(Snapshot(NOW + second, 0.0, 0.0, 0, (gone,)))
    down = SourceHealth("vllm", "", False, "refused", reason, 0.0004, NOW)
    others = tuple(replace(source, last_success=NOW + 40) for source in UP[1:])
    return Scene(replace(before.snapshot, time=NOW + 40, engines=(gone,), sources=(down, *others)), before.history)


def _no_gpu() -> Scene:
    message = "NVML is not here: libnvidia-ml.so.1 cannot be loaded"
    nvml = SourceHealth("nvml", "", False, "library_not_found", message, 0.0001, None)
    return scene(engine(MOODS["ok"]), devices=(), sources=(UP[0], nvml, UP[2]))


def _two() -> Scene:
    return scene(engine(MOODS["ok"]), engine(MOODS["predicted"], "1"), devices=(device(0), device(1)))


def _eight() -> Scene:
    states: tuple[State, ...] = ("ok", "ok", "watch", "ok", "predicted", "asleep", "ok", "exhausted")
    engines = tuple(engine(MOODS[state], str(number)) for number, state in enumerate(states))
    return scene(*engines, devices=tuple(device(number) for number in range(8)))


def _hostile() -> Scene:
    name = """"><script>alert(1)</script><img src=x onerror=alert(2)>' & </title></style>""" + "x" * 200
    mood = replace(MOODS["predicted"], reason="<b>bold</b> & more")
    source = SourceHealth("vllm", "", False, "fault", "</p><script>alert(3)</script>", 0.1, NOW)
    status = replace(engine(mood, model=name), server="")
    return scene(status, engine(MOODS["ok"], "</option>", model=name), sources=(source,))


def _gpu_leak() -> Scene:
    leak = device(
        state="predicted",
        reason="the server's own memory outside the pool grows by 1,190 MiB an hour; the 810 MiB left last 41 min",
        predicted=True,
        probability={3600.0: 0.93},
        growth_bytes_per_second=346_000.0,
        time_to_exhaustion_seconds=2460.0,
        headroom_bytes=938 * 2**20,
    )
    return scene(engine(MOODS["ok"]), devices=(leak,))


SCENES: dict[str, Callable[[], Scene]] = {
    "ok": lambda: scene(engine(MOODS["ok"])),
    "watch": lambda: scene(engine(MOODS["watch"])),
    "predicted": lambda: scene(engine(MOODS["predicted"])),
    "exhausted": lambda: scene(engine(MOODS["exhausted"]), calm=0.62),
    "stalled": lambda: scene(engine(MOODS["stalled"])),
    "asleep": lambda: scene(engine(MOODS["asleep"]), calm=0.1),
    "unknown": lambda: scene(replace(engine(MOODS["unknown"])), seconds=4),
    "vllm-down": _down,
    "no-gpu": _no_gpu,
    "gpu-leak": _gpu_leak,
    "two-engines": _two,
    "eight-engines": _eight,
    "hostile": _hostile,
    "control": lambda: scene(engine(MOODS["ok"], "0\x1b[2J", model="m\x1b]0;owned\x07\u202e")),
}
"""By name; each call makes the scene anew."""
