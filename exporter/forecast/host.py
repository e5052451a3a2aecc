"""When the host memory of the server runs out and the kernel kills it.

What decides a kill is memory that cannot be reclaimed, against the nearest limit: the control group's, or the
machine's when there is none. Page cache rises to any limit without danger and is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.forecast.exhaustion import Latch, Uptime, chance, seconds_until
from exporter.forecast.trend import Trend, TrendWindow
from exporter.reading import HostReading

HostState = Literal["ok", "watch", "predicted", "unknown"]

OFFLOAD_FACTOR = 2.0
"""Host memory that KV offloading takes per configured byte: 1.92 was measured (385.0 GiB for 200), rounded up."""
OFFLOAD_DONE = 0.95
"""Share of the expected offload memory from which it counts as taken."""
_BOUNDS: tuple[Literal["limit", "machine"], ...] = ("limit", "machine")
DEFAULT_FLOOR_BYTES = 256 * 2**20
"""Room below which any burst of allocations ends in a kill; an assumption."""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """How the forecast is asked; times in seconds."""

    horizons: tuple[float, ...] = (60.0, 600.0, 3600.0)
    page_horizon: float = 3600.0
    settle_seconds: float = 600.0
    window_seconds: float = 3600.0
    watch_seconds: float = 24 * 3600.0
    floor_bytes: int = DEFAULT_FLOOR_BYTES
    restart_drop_ratio: float = 0.3


@dataclass(frozen=True, slots=True)
class HostAssessment:
    """The container's risk. What is not known is `None` or empty, never zero."""

    time: float
    scope: str
    state: HostState
    reason: str
    """The rule behind `state`, as a sentence for people."""
    headroom_bytes: int | None = None
    """The nearest limit less what cannot be reclaimed and less what offloading has still to take."""
    limited_by: Literal["limit", "machine"] | None = None
    growth_bytes_per_second: float | None = None
    """Growth of what cannot be reclaimed; 0 when steady, `None` until it has been watched for long enough."""
    probability: Mapping[float, float] = field(default_factory=dict)
    """P(an OOM kill within the horizon), by horizon in seconds; empty = abstains."""
    predicted: bool | None = None
    time_to_exhaustion_seconds: float | None = None
    offload_pending_bytes: int | None = None
    """Host memory that KV offloading is expected to take and has not yet taken; `None` without offloading."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """One of the two walls: how much is left before it, and the climb towards it."""

    name: Literal["limit", "machine"]
    room: int
    climb: Trend | None
    settled: bool


class HostForecaster:
    """Follows one server's host memory; feed it every reading in order."""

    def __init__(self, options: HostOptions | None = None) -> None:
        self._options = options or HostOptions()
        self._latch = Latch(hold_seconds=120.0)
        self._uptime = Uptime()
        self._windows = {name: TrendWindow(self._options.window_seconds) for name in _BOUNDS}
        self._highest = 0
        self._scope = ""

    def observe(
        self, reading: HostReading, *, kv_offloading_gib: float | None = None, serving: bool = True
    ) -> HostAssessment:
        """Assess one reading. `kv_offloading_gib` is the page's `kv_offloading_size`; `serving` as for a GPU."""
        serving = self._uptime.update(reading.time, serving)
        used = reading.committed if reading.committed is not None else reading.working_set
        pending = offload_pending(kv_offloading_gib, reading.shmem)
        if not serving or self._dropped(used or 0) or reading.scope != self._scope:
            self._highest, self._scope = 0, reading.scope
            for window in self._windows.values():
                window.clear()
        self._highest = max(self._highest, used or 0)
        bounds: list[_Bound] = []
        if reading.limit is not None and used is not None:
            bounds.append(self._bound("limit", reading.time, reading.limit, used, pending, serving))
        if reading.machine_total is not None and reading.machine_available is not None:
            taken = reading.machine_total - reading.machine_available
            bounds.append(self._bound("machine", reading.time, reading.machine_total, taken, pending, serving))
        if not bounds:
            why = f"no limit of the {reading.scope} can be seen, nor the machine's memory"
            return HostAssessment(reading.time, reading.scope, "unknown", why, offload_pending_bytes=pending)
        return self._assess(reading, bounds, pending)

    def _bound(
        self, name: Literal["limit", "machine"], time: float, wall: int, used: int, pending: int | None, serving: bool
    ) -> _Bound:
        window = self._windows[name]
        if serving:
            window.add(time, used)
        settle = self._options.settle_seconds
        return _Bound(name, wall - used - (pending or 0), window.climb(settle), window.span_seconds >= settle)

    def _assess(self, reading: HostReading, bounds: list[_Bound], pending: int | None) -> HostAssessment:
        options = self._options
        chances = {
            horizon: [chance(bound.room - options.floor_bytes, bound.climb, horizon) for bound in bounds]
            for horizon in options.horizons
        }
        probability = {horizon: max(each) for horizon, each in chances.items()}
        page = chances.get(options.page_horizon, chances[max(chances)])
        predicted = self._latch.update(reading.time, max(page))
        # The wall that is spoken of: the likelier to be hit, or else the nearer.
        nearest = max(zip(page, bounds, strict=True), key=lambda pair: (pair[0], -pair[1].room))[1]
        until = seconds_until(nearest.room - options.floor_bytes, nearest.climb)
        state: HostState = "ok"
        if predicted:
            state = "predicted"
        elif until is not None and until < options.watch_seconds:
            state = "watch"
        return HostAssessment(
            time=reading.time,
            scope=reading.scope,
            state=state,
            reason=_reason(reading.scope, nearest, options.floor_bytes, until, pending),
            headroom_bytes=min(bound.room for bound in bounds),
            limited_by=nearest.name,
            growth_bytes_per_second=nearest.climb.slope if nearest.climb else 0.0 if nearest.settled else None,
            probability=probability,
            predicted=predicted,
            time_to_exhaustion_seconds=until,
            offload_pending_bytes=pending,
        )

    def _dropped(self, used: int) -> bool:
        """Whether so much was given back that this is another life of the server."""
        return self._highest - used > self._options.restart_drop_ratio * self._highest


def offload_pending(kv_offloading_gib: float | None, shmem: int | None) -> int | None:
    """Bytes that KV offloading has still to take, given what is shared now; `None` without offloading.

    It is `None` too where shared memory cannot be seen: what was taken already would be counted twice.
    """
    if not kv_offloading_gib or shmem is None:
        return None
    expected = int(OFFLOAD_FACTOR * kv_offloading_gib * 2**30)
    return 0 if shmem >= OFFLOAD_DONE * expected else expected - shmem


def start_peak_bytes(swap_space_gib: float, tensor_parallel_size: int, weight_bytes: int) -> int:
    """Host memory a start may need at once: pinned swap space on every rank, and the weights as each is loaded."""
    return int(swap_space_gib * 2**30) * tensor_parallel_size + weight_bytes


def _reason(scope: str, bound: _Bound, floor: int, until: float | None, pending: int | None) -> str:
    mib, left = 2**20, bound.room - floor
    wall = f"the {scope}'s limit" if bound.name == "limit" else "the machine's memory"
    if left <= 0:
        why = f", after the {pending / mib:,.0f} MiB that KV offloading has still to take" if pending else ""
        return f"{bound.room / mib:,.0f} MiB are left of {wall}{why}"
    if bound.climb is not None and until is not None:
        rate = f"{bound.climb.slope * 3600 / mib:,.0f} MiB an hour"
        return f"memory grows by {rate}; the {left / mib:,.0f} MiB left of {wall} last {until / 60:,.0f} min"
    steady = "steady" if bound.settled else "not watched for long enough to tell growth"
    return f"{bound.room / mib:,.0f} MiB are left of {wall}; {steady}"
