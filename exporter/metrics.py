"""The one table of every exported family: it makes the page, the reference and the completeness tests."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from platform import python_version
from typing import Any, Literal, get_args

from prometheus_client import Metric
from prometheus_client.registry import Collector

from exporter import __version__
from exporter.forecast.assessment import Driver, State
from exporter.forecast.device import DeviceAssessment, DeviceState, Owner
from exporter.forecast.host import HostAssessment, HostState
from exporter.snapshot import DeviceStatus, EngineStatus, HostStatus, Snapshot, SourceHealth

Labels = dict[str, str]
Value = float | None | Mapping[Any, float | None]
Rows = Callable[[Snapshot], Iterator[tuple[Labels, float]]]

PEAK_WINDOW_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Family:
    """One exported family. `rows` draws its samples from a snapshot; what is absent there gives no sample."""

    name: str
    kind: Literal["gauge", "counter", "summary"]
    help: str
    rows: tuple[Rows, ...]
    labels: tuple[str, ...]

    def collect(self, snapshot: Snapshot) -> Metric:
        """The family with its samples, as prometheus_client writes it."""
        metric = Metric(self.name.removesuffix("_total") if self.kind == "counter" else self.name, self.help, self.kind)
        for rows in self.rows:
            for labels, value in rows(snapshot):
                metric.add_sample(self.name, labels, value)
        return metric


def _expand(base: Labels, names: tuple[str, ...], value: Value) -> Iterator[tuple[Labels, float]]:
    """A number is one sample; a mapping is one sample a key, its key the values of the labels `names`."""
    if isinstance(value, Mapping):
        for key, number in value.items():
            if number is not None:
                parts = key if isinstance(key, tuple) else (key,)
                texts = [f"{part:g}" if isinstance(part, float) else str(part) for part in parts]
                yield base | dict(zip(names, texts, strict=True)), float(number)
    elif value is not None:
        yield base, float(value)


def _server(name: str) -> Labels:
    return {"server": name} if name else {}


def _engine(value: Callable[[EngineStatus], Value], *names: str, **fixed: str) -> Rows:
    def rows(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
        for status in snapshot.engines:
            reading = status.reading
            base = {"model_name": reading.model_name, "engine": reading.engine, **_server(status.server), **fixed}
            yield from _expand(base, names, value(status))

    return rows


def _device(value: Callable[[DeviceStatus], Value], *names: str, **fixed: str) -> Rows:
    def rows(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
        for status in snapshot.devices:
            base = {"gpu": status.reading.gpu, "uuid": status.reading.uuid, **fixed}
            yield from _expand(base, names, value(status))

    return rows


def _host(value: Callable[[HostStatus], Value], *names: str, **fixed: str) -> Rows:
    def rows(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
        if snapshot.host is not None:
            yield from _expand(fixed, names, value(snapshot.host))

    return rows


def _source(value: Callable[[Snapshot, SourceHealth], Value], *names: str) -> Rows:
    def rows(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
        for health in snapshot.sources:
            base = {"source": health.source, **_server(health.server)}
            yield from _expand(base, names, value(snapshot, health))

    return rows


def _whole(value: Callable[[Snapshot], Value], *names: str) -> Rows:
    return lambda snapshot: _expand({}, names, value(snapshot))


def _risk(
    kv: Callable[[EngineStatus], Value], memory: Callable[[DeviceAssessment | HostAssessment], Value], *names: str
) -> tuple[Rows, ...]:
    """The same question asked of the three risks."""
    return (
        _engine(kv, *names, risk="kv"),
        _device(lambda d: memory(d.risk), *names, risk="device"),
        _host(lambda h: memory(h.risk), *names, risk="host"),
    )


def _enum(values: Iterable[str], chosen: str | None) -> Mapping[str, float] | None:
    return None if chosen is None else {value: float(value == chosen) for value in values}


def _age(snapshot: Snapshot, health: SourceHealth) -> float | None:
    return None if health.last_success is None else max(0.0, snapshot.time - health.last_success)


_ENGINE = ("model_name", "engine")
_GPU = ("gpu", "uuid")
_RISK = ("risk", "model_name", "engine", "gpu", "uuid")


def _gauge(name: str, help: str, labels: tuple[str, ...], *rows: Rows) -> Family:  # noqa: A002 – Prometheus's word
    return Family("vllm_headroom_" + name, "gauge", help, rows, labels)


def _summary(name: str, help: str, labels: tuple[str, ...], *rows: Rows) -> Family:  # noqa: A002 – Prometheus's word
    return Family("vllm_headroom_" + name, "summary", help, rows, labels)


def _counter(name: str, help: str, labels: tuple[str, ...], *rows: Rows) -> Family:  # noqa: A002 – Prometheus's word
    return Family("vllm_headroom_" + name, "counter", help, rows, labels)


# fmt: off
TABLE: tuple[Family, ...] = (
    _gauge("kv_capacity_tokens", "Tokens the KV pool holds: as the engine reports it, or as the model's arithmetic gives for the same blocks.", (*_ENGINE, "source"),
        _engine(lambda e: {"engine": e.capacity.tokens if e.capacity.tokens_rule != "arithmetic" else None, "analytic": e.capacity.analytic_tokens}, "source")),
    _gauge("kv_capacity_bytes", "Bytes of the KV pool on each tensor-parallel rank.", (*_ENGINE, "source"),
        _engine(lambda e: {"engine": e.capacity.bytes, "analytic": e.capacity.analytic_bytes}, "source")),
    _gauge("kv_capacity_blocks", "Blocks of the KV pool that requests can use; the null block is not counted.", (*_ENGINE, "source"),
        _engine(lambda e: {"engine": e.capacity.usable_blocks}, "source")),
    _gauge("kv_used_blocks", "Blocks of the KV pool held by live requests.", _ENGINE, _engine(lambda e: e.used_blocks)),
    _gauge("kv_used_ratio", "Share of the KV pool held by live requests, as the engine reports it.", _ENGINE, _engine(lambda e: e.reading.kv_usage)),
    _gauge("kv_used_ratio_peak", "Highest share of the KV pool in use at any reading of the last window.", (*_ENGINE, "window_seconds"),
        _engine(lambda e: {str(PEAK_WINDOW_SECONDS): e.assessment.used_ratio_peak}, "window_seconds")),
    _gauge("kv_blocks", "Headroom: blocks of the KV pool that are free.", _ENGINE, _engine(lambda e: e.headroom.blocks)),
    _gauge("kv_tokens", "Headroom: tokens that still fit into the KV pool.", _ENGINE, _engine(lambda e: e.headroom.tokens)),
    _gauge("kv_bytes", "Headroom: bytes of the KV pool that are free, on each tensor-parallel rank.", _ENGINE, _engine(lambda e: e.headroom.bytes)),
    _gauge("kv_requests", "Headroom: typical requests of the present load that still fit into the KV pool.", _ENGINE, _engine(lambda e: e.headroom.requests)),
    # A distribution told by its quantiles is a summary: Prometheus reserves the label `quantile` for that type.
    _summary("kv_demand_ratio", "Projection: KV blocks the present load will need at the horizon over the pool's; it can exceed 1.", (*_ENGINE, "horizon_seconds", "quantile"),
        _engine(lambda e: e.assessment.demand_ratio, "horizon_seconds", "quantile")),
    _gauge("kv_offered_load_ratio", "KV the present arrivals need in the long run over the pool's; from 1 on, preemption is a matter of time.", _ENGINE,
        _engine(lambda e: e.assessment.offered_load_ratio)),
    _gauge("requests", "Requests in the engine: running, and waiting for KV blocks, for a free sequence or for anything else.", (*_ENGINE, "state"),
        _engine(lambda e: {"running": e.reading.running, "waiting": e.reading.waiting}, "state")),
    _gauge("weight_bytes", "Bytes of the model's weights on each tensor-parallel rank (estimated from the model's config).", _ENGINE,
        _engine(lambda e: e.capacity.weight_bytes)),
    _gauge("kv_bytes_per_token", "Bytes one more token of context takes on each tensor-parallel rank, while every layer still grows.", _ENGINE,
        _engine(lambda e: e.capacity.bytes_per_token)),
    _gauge("kv_blocks_per_request", "Blocks a typical request of the present load holds at its end.", _ENGINE, _engine(lambda e: e.assessment.blocks_per_request)),
    _gauge("kv_calibration_ratio", "Tokens the engine says its pool holds over what the arithmetic says; far from 1 the model is misread.", _ENGINE,
        _engine(lambda e: e.capacity.calibration_ratio)),
    _gauge("oom_probability", "Probability that memory runs out within the horizon: of the KV pool (a preemption), the GPU or the container.", (*_RISK, "horizon_seconds"),
        *_risk(lambda e: e.assessment.probability, lambda r: r.probability, "horizon_seconds")),
    _gauge("oom_predicted", "The alarm: 1 while memory is predicted to run out, 0 while it is not; no sample when that is not known.", _RISK,
        *_risk(lambda e: e.assessment.predicted, lambda r: r.predicted)),
    _gauge("time_to_exhaustion_seconds", "Expected seconds until memory runs out; no sample while none is in sight.", _RISK,
        *_risk(lambda e: e.assessment.time_to_exhaustion_seconds, lambda r: r.time_to_exhaustion_seconds)),
    _gauge("state", "What the KV pool is doing: 1 for the present state, 0 for the others.", (*_ENGINE, "state"),
        _engine(lambda e: _enum(get_args(State), e.assessment.state), "state")),
    _gauge("preemptions_per_second", "Preemptions per second over the last minute.", _ENGINE, _engine(lambda e: e.assessment.preemptions_per_second)),
    _gauge("preemptions_per_finished_request", "Preemptions over finished requests of the last minutes.", _ENGINE,
        _engine(lambda e: e.assessment.preemptions_per_finished_request)),
    _gauge("recomputed_tokens_per_second", "Tokens per second that preemption made the engine compute again (estimated).", _ENGINE,
        _engine(lambda e: e.assessment.recomputed_tokens_per_second)),
    _gauge("risk_driver", "Which load drives the risk: 1 for the present driver, 0 for the others.", (*_ENGINE, "driver"),
        _engine(lambda e: _enum(get_args(Driver), e.assessment.driver), "driver")),
    _gauge("lever_gain_ratio", "Capacity or demand after pulling the lever over now: above 1 capacity grows, below 1 demand shrinks (estimated).", (*_ENGINE, "lever"),
        _engine(lambda e: e.assessment.levers, "lever")),
    _counter("forecasts_total", "Forecasts of KV exhaustion that came true or not, by outcome.", (*_ENGINE, "outcome"), _engine(lambda e: e.assessment.forecasts, "outcome")),
    _gauge("forecast_calibration_error", "How far forecast probabilities were from what happened, over the last day.", _ENGINE,
        _engine(lambda e: e.assessment.calibration_error)),
    _gauge("device_memory_bytes", "Memory of the GPU by kind, as NVML reports it.", (*_GPU, "kind"),
        _device(lambda d: {kind: getattr(d.reading, kind) for kind in ("total", "used", "free", "reserved", "this_process", "other_processes", "unattributed")}, "kind"),
        _device(lambda d: {"unified": d.reading.free if d.reading.unified else None}, "kind")),
    _gauge("device_info", "The GPU's name, and by which rule it was taken for the server's; always 1.", (*_GPU, "name", "rule"),
        _device(lambda d: {(d.reading.name or "", d.reading.rule or ""): 1.0}, "name", "rule")),
    _gauge("device_unified", "1 on a GPU that shares the machine's memory, 0 on one with memory of its own.", _GPU, _device(lambda d: d.reading.unified)),
    _gauge("device_bytes", "Headroom: bytes the next allocation on the GPU can take outside the KV pool.", _GPU, _device(lambda d: d.risk.headroom_bytes)),
    _gauge("device_growth_bytes_per_second", "Steady growth of GPU memory since warm-up; the KV pool is static, so this is never KV.", _GPU,
        _device(lambda d: d.risk.growth_bytes_per_second)),
    _gauge("device_next_allocation_bytes", "The largest plausible next allocations outside the KV pool (estimated from the model's config).", (*_GPU, "what"),
        _device(lambda d: d.risk.next_allocation_bytes, "what")),
    _gauge("device_state", "What memory outside the KV pool is doing: 1 for the present state, 0 for the others.", (*_GPU, "state"),
        _device(lambda d: _enum(get_args(DeviceState), d.risk.state), "state")),
    _gauge("device_grower", "Whose memory grows on the GPU while any does: 1 for the owner, 0 for the others.", (*_GPU, "owner"),
        _device(lambda d: _enum(get_args(Owner), d.risk.grower), "owner")),
    _gauge("device_over_budget_bytes", "GPU memory the server holds beyond its gpu_memory_utilization; below 0 is normal.", _GPU, _device(lambda d: d.risk.over_budget_bytes)),
    _gauge("device_next_start_bytes", "GPU memory a new start of the server would have to spare before any KV cache; below 0 it fails (estimated).", _GPU,
        _device(lambda d: d.risk.next_start_bytes)),
    _gauge("host_memory_bytes", "Memory of the container by kind, as its cgroup reports it; no limit is no sample.", ("kind",),
        _host(lambda h: {kind: getattr(h.reading, kind) for kind in
              ("current", "limit", "swap", "swap_limit", "anon", "shmem", "file", "working_set", "committed", "dev_shm_used", "dev_shm_limit", "machine_total", "machine_available")}, "kind")),
    _gauge("host_info", "Whose memory host_memory_bytes is: of the server's container, pod or processes, or of the machine alone; always 1.", ("scope",),
        _host(lambda h: {h.reading.scope: 1.0}, "scope")),
    _gauge("host_state", "What host memory is doing: 1 for the present state, 0 for the others.", ("state",), _host(lambda h: _enum(get_args(HostState), h.risk.state), "state")),
    _gauge("host_pressure_ratio", "Share of time in which some tasks of the container, or all, stood still for want of memory (PSI).", ("kind", "window_seconds"),
        _host(lambda h: {(kind, window): getattr(h.reading.pressure, f"{kind}_{window}s", None) for kind in ("some", "full") for window in (10, 60)}, "kind", "window_seconds")),
    _gauge("host_offload_pending_bytes", "Host memory KV offloading is expected to take and has not yet taken (estimated).", (), _host(lambda h: h.risk.offload_pending_bytes)),
    _gauge("host_bytes", "Headroom: bytes left below the container's memory limit.", (), _host(lambda h: h.risk.headroom_bytes)),
    _gauge("host_growth_bytes_per_second", "Steady growth of the container's memory that the kernel cannot take back.", (), _host(lambda h: h.risk.growth_bytes_per_second)),
    _counter("host_oom_kills_total", "Times the kernel killed a process of the container for want of memory, since this monitor started.", (), _host(lambda h: h.reading.oom_kills)),
    _counter("host_oom_kills_inferred_total", "Those of host_oom_kills_total that were deduced: the container was gone before its counter could be read.", (),
        _host(lambda h: h.reading.oom_kills_inferred)),
    _counter("host_limit_hits_total", "Times the container ran into its memory limit and reclaim was tried; starts anew with the container.", (),
        _host(lambda h: h.reading.limit_hits)),
    _counter("host_ooms_total", "Times reclaim failed at the container's limit, after which a kill usually follows; starts anew with the container.", (),
        _host(lambda h: h.reading.ooms)),
    _counter("host_server_starts_total", "Times the server's main process was seen to start, the first sight included.", (), _host(lambda h: h.reading.server_starts)),
    _gauge("source_up", "1 if the last reading of the source succeeded.", ("source",), _source(lambda _, h: h.up)),
    _gauge("source_down_reason", "Why a source is down: 1 for the present reason.", ("source", "reason"), _source(lambda _, h: None if h.up else {h.reason: 1.0}, "reason")),
    _gauge("source_duration_seconds", "Seconds the last reading of the source took.", ("source",), _source(lambda _, h: h.duration_seconds)),
    _gauge("source_age_seconds", "Seconds between the last good reading of the source and this tick.", ("source",), _source(_age)),
    _gauge("source_info", "Under which name each concept was found; always 1.", ("source", "concept", "name"),
        _source(lambda _, h: dict.fromkeys(h.names.items(), 1.0), "concept", "name")),
    _gauge("last_tick_timestamp_seconds", "When the last tick ended, in Unix seconds.", (), _whole(lambda s: s.wall_time)),
    _gauge("tick_duration_seconds", "Seconds the last tick took, waiting for sources included.", (), _whole(lambda s: s.duration_seconds)),
    _counter("ticks_total", "Ticks since the start.", (), _whole(lambda s: s.ticks)),
    _gauge("build_info", "Version of the exporter and of its Python; always 1.", ("version", "python"),
        _whole(lambda _: {(__version__, python_version()): 1.0}, "version", "python")),
)
# fmt: on


class SnapshotCollector(Collector):
    """Hands the latest snapshot to prometheus_client as families; a family without samples is left out."""

    def __init__(self, latest: Callable[[], Snapshot | None]) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Metric]:
        """Every family of the table that has something to say now."""
        snapshot = self._latest()
        if snapshot is None:
            return
        for family in TABLE:
            metric = family.collect(snapshot)
            if metric.samples:
                yield metric
