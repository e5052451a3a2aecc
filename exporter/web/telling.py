"""A snapshot and its history, told as the status document."""

from collections.abc import Mapping

from exporter import __version__
from exporter.forecast.device import DeviceAssessment
from exporter.forecast.host import HostAssessment
from exporter.history import History
from exporter.reading import Histogram
from exporter.snapshot import DeviceStatus, EngineStatus, HostStatus, Snapshot
from exporter.web.levers import levers
from exporter.web.segments import segments_of
from exporter.web.status import (
    Chance,
    Demand,
    Device,
    Engine,
    Forecast,
    Host,
    Lengths,
    Load,
    Past,
    Pool,
    Score,
    Source,
    Status,
    Verdict,
)
from exporter.web.verdicts import engine_sentence, verdict_of
from exporter.web.words import about

WINDOWS = (60, 300, 900)
"""Windows of the past in seconds that can be asked for; the last one is the default."""

POINTS = 300
"""As many as a chart of usual width can show."""


def tell(
    snapshot: Snapshot,
    history: History,
    now: float,
    stale_seconds: float,
    window: int = WINDOWS[-1],
    points: int = POINTS,
) -> Status:
    """The document at `now`, a time of the snapshot's clock, with the last `window` seconds in `points` points."""
    engines = tuple(_engine(status, history, snapshot.time, window, points) for status in snapshot.engines)
    devices = tuple(_device(status, snapshot) for status in snapshot.devices)
    host = _host(snapshot.host) if snapshot.host is not None else None
    age = max(0.0, now - snapshot.time)
    stale = age > stale_seconds
    verdict = verdict_of(engines, devices, host, snapshot.sources)
    if stale:
        verdict = Verdict("unknown", f"Not known: the last reading is {about(age)} old.", "the monitor itself is stuck")
    return Status(
        version=1,
        exporter=__version__,
        time=snapshot.wall_time,
        age_seconds=round(age, 3),
        stale=stale,
        verdict=verdict,
        engines=engines,
        devices=devices,
        host=host,
        sources=tuple(
            Source(
                source=health.source,
                server=health.server,
                up=health.up,
                reason=health.reason,
                message=health.message,
                duration_seconds=health.duration_seconds,
                age_seconds=None if health.last_success is None else max(0.0, snapshot.time - health.last_success),
            )
            for health in snapshot.sources
        ),
    )


def _engine(status: EngineStatus, history: History, now: float, window: int, points: int) -> Engine:
    reading, assessment = status.reading, status.assessment
    trace = history.trace((status.server, reading.model_name, reading.engine), now, window, points)
    return Engine(
        server=status.server,
        model_name=reading.model_name,
        engine=reading.engine,
        state=assessment.state,
        sentence=engine_sentence(status),
        reason=assessment.reason,
        pool=_pool(status),
        forecast=Forecast(
            predicted=assessment.predicted,
            chances=tuple(Chance(horizon, p) for horizon, p in sorted(assessment.probability.items())),
            time_to_exhaustion_seconds=assessment.time_to_exhaustion_seconds,
            demand=tuple(Demand(*key, ratio) for key, ratio in sorted(assessment.demand_ratio.items())),
            driver=assessment.driver,
        ),
        load=_load(status),
        levers=levers(assessment.levers),
        score=_score(assessment.forecasts, assessment.calibration_error),
        history=Past(
            window_seconds=window,
            seconds_ago=trace.seconds_ago,
            used_ratio=trace.used_ratio,
            preemptions=trace.preemptions,
            running=trace.running,
            waiting=trace.waiting,
        ),
    )


def _pool(status: EngineStatus) -> Pool:
    capacity, headroom = status.capacity, status.headroom
    return Pool(
        capacity_tokens=capacity.tokens,
        capacity_tokens_rule=capacity.tokens_rule,
        capacity_bytes=capacity.bytes if capacity.bytes is not None else capacity.analytic_bytes,
        usable_blocks=capacity.usable_blocks,
        used_blocks=status.used_blocks,
        used_ratio=status.reading.kv_usage,
        used_ratio_peak=status.assessment.used_ratio_peak,
        headroom_tokens=headroom.tokens,
        headroom_requests=headroom.requests,
        headroom_bytes=headroom.bytes,
        headroom_blocks=headroom.blocks,
        offered_load_ratio=status.assessment.offered_load_ratio,
        calibration_ratio=capacity.calibration_ratio,
    )


def _load(status: EngineStatus) -> Load:
    reading, assessment = status.reading, status.assessment
    held = None
    if reading.kv_usage is not None and reading.running and status.capacity.tokens is not None:
        held = reading.kv_usage * status.capacity.tokens / reading.running
    return Load(
        running=reading.running,
        waiting=reading.waiting,
        waiting_by_reason=dict(reading.waiting_by_reason),
        held_tokens_per_request=held,
        prompt=_lengths(reading.prompt_lengths),
        output=_lengths(reading.generation_lengths),
        max_model_len=status.capacity.max_model_len,
        preemptions_per_second=assessment.preemptions_per_second,
        preemptions_per_finished_request=assessment.preemptions_per_finished_request,
        recomputed_tokens_per_second=assessment.recomputed_tokens_per_second,
    )


def _lengths(histogram: Histogram | None) -> Lengths:
    if histogram is None or histogram.count <= 0:
        return Lengths(None, None, None)
    return Lengths(histogram.sum / histogram.count, _bound(histogram, 0.5), _bound(histogram, 0.9))


def _bound(histogram: Histogram, quantile: float) -> float | None:
    """The upper bound of the bucket that holds the quantile; `None` in the last one, which has none."""
    for bound, total in zip(histogram.bounds[:-1], histogram.counts, strict=False):
        if total >= quantile * histogram.count:
            return bound
    return None


def _score(outcomes: Mapping[str, int], error: float | None) -> Score | None:
    if not outcomes:
        return None
    get = outcomes.get
    return Score(get("hit", 0), get("miss", 0), get("false_alarm", 0), get("correct_quiet", 0), error)


def _device(status: DeviceStatus, snapshot: Snapshot) -> Device:
    reading, risk = status.reading, status.risk
    return Device(
        gpu=reading.gpu,
        uuid=reading.uuid,
        name=reading.name,
        total_bytes=reading.total,
        segments=segments_of(reading, snapshot.engines, len(snapshot.devices)),
        headroom_bytes=risk.headroom_bytes,
        growth_bytes_per_second=risk.growth_bytes_per_second,
        probability=_farthest(risk),
        predicted=risk.predicted,
        time_to_exhaustion_seconds=risk.time_to_exhaustion_seconds,
        state=risk.state,
        reason=risk.reason,
    )


def _host(status: HostStatus) -> Host:
    reading, risk = status.reading, status.risk
    return Host(
        scope=reading.scope,
        used_bytes=reading.committed if reading.committed is not None else reading.working_set,
        limit_bytes=reading.limit,
        headroom_bytes=risk.headroom_bytes,
        growth_bytes_per_second=risk.growth_bytes_per_second,
        oom_kills=reading.oom_kills,
        probability=_farthest(risk),
        predicted=risk.predicted,
        time_to_exhaustion_seconds=risk.time_to_exhaustion_seconds,
        state=risk.state,
        reason=risk.reason,
    )


def _farthest(risk: DeviceAssessment | HostAssessment) -> float | None:
    return risk.probability[max(risk.probability)] if risk.probability else None
