"""When GPU memory outside the KV pool runs out, and who takes it.

vLLM allocates its pool once, so a full GPU is normal and growth after warm-up is never KV. The risk is the room above
a floor, and the climb that eats it; a large allocation that has not been seen yet adds a small, stated prior.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.forecast.card_budget import next_start_bytes, over_budget
from exporter.forecast.exhaustion import Latch, Uptime, chance, either, seconds_until
from exporter.forecast.trend import Trend, TrendWindow
from exporter.reading import DeviceReading

DeviceState = Literal["ok", "watch", "predicted", "unknown"]
Owner = Literal["server", "neighbour", "unattributed"]

DEFAULT_FLOOR_BYTES = 128 * 2**20
"""Room a server needs to go on when nothing is known of its model; an assumption."""
FLOOR_SHARE = 0.009
"""The floor is never more of a card than this: one that was configured to 99 % and is steady is no alarm."""
RARE_EVENT_SECONDS = 24 * 3600.0
"""Prior: an allocation that has not been seen comes at half an event in this time plus the time watched."""


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """How the forecast is asked. Horizons in seconds: a GPU fills in minutes to hours, not in seconds.

    `gpu_memory_utilization` is the server's own setting, where it is known; `settle_seconds` is how long a server is
    watched before growth is believed.
    """

    horizons: tuple[float, ...] = (60.0, 600.0, 3600.0)
    page_horizon: float = 3600.0
    settle_seconds: float = 600.0
    window_seconds: float = 3600.0
    watch_seconds: float = 24 * 3600.0
    restart_drop_ratio: float = 0.2
    gpu_memory_utilization: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceAssessment:
    """One GPU's risk outside the pool. What is not known is `None` or empty, never zero."""

    time: float
    gpu: str
    uuid: str
    state: DeviceState
    reason: str
    """The rule behind `state`, as a sentence for people."""
    headroom_bytes: int | None = None
    """What the next allocation can take: free memory, or the machine's available memory on a unified part."""
    floor_bytes: int | None = None
    growth_bytes_per_second: float | None = None
    """Non-KV growth since warm-up; 0 when steady, `None` until it has been watched for long enough."""
    grower: Owner | None = None
    """Whose memory grows, where that can be told."""
    probability: Mapping[float, float] = field(default_factory=dict)
    """P(an allocation fails within the horizon), by horizon in seconds; empty = abstains."""
    predicted: bool | None = None
    time_to_exhaustion_seconds: float | None = None
    next_allocation_bytes: Mapping[str, int] = field(default_factory=dict)
    shared: bool | None = None
    """Whether other processes hold memory of this GPU; `None` where that cannot be told."""
    over_budget_bytes: int | None = None
    """Used less `gpu_memory_utilization` × what CUDA calls total; below zero is normal, not an error."""
    next_start_bytes: int | None = None
    """What a new start of the server would have to spare before any KV cache; below zero it fails."""


class DeviceForecaster:
    """Follows one GPU; feed it every reading of that GPU in order."""

    def __init__(self, options: DeviceOptions | None = None) -> None:
        self._options = options or DeviceOptions()
        self._latch = Latch(hold_seconds=120.0)
        self._uptime = Uptime()
        self._occupied = TrendWindow(self._options.window_seconds)
        self._owners: dict[Owner, TrendWindow] = {
            "server": TrendWindow(self._options.window_seconds),
            "neighbour": TrendWindow(self._options.window_seconds),
            "unattributed": TrendWindow(self._options.window_seconds),
        }
        self._since: float | None = None
        self._highest = 0
        self._utilization = self._options.gpu_memory_utilization
        self._weights: int | None = None

    def observe(
        self,
        reading: DeviceReading,
        next_allocations: Mapping[str, int] | None = None,
        *,
        serving: bool = True,
        gpu_memory_utilization: float | None = None,
        weight_bytes: int | None = None,
    ) -> DeviceAssessment:
        """Assess one reading.

        `serving` is false while the server is down or loading: growth is then its start. `gpu_memory_utilization` is
        the server's own setting, as its page tells it; without it the options' is used. That and `weight_bytes` are
        kept while the server is down: it will start with them again.
        """
        if serving:
            self._utilization = gpu_memory_utilization or self._options.gpu_memory_utilization
            self._weights = weight_bytes
        allocations = dict(next_allocations or {})
        serving = self._uptime.update(reading.time, serving)
        free, total = reading.free, reading.total
        if free is None or total is None:
            self._restart()
            why = reading.missing.get("memory", "absent").replace("_", " ")
            return self._silent(reading, allocations, f"GPU {reading.gpu} does not tell its memory ({why})")
        occupied = total - free
        if not serving or self._dropped(occupied, total):
            self._restart()
        if not serving:
            return self._silent(reading, allocations, "the server is not up: what it allocates now is its start", free)
        self._take(reading, occupied)
        floor = min(allocations.get("logits_chunk", DEFAULT_FLOOR_BYTES), int(FLOOR_SHARE * total))
        return self._assess(reading, allocations, free, floor)

    def _assess(self, reading: DeviceReading, allocations: dict[str, int], free: int, floor: int) -> DeviceAssessment:
        options = self._options
        room = free - floor
        watched = reading.time - (self._since if self._since is not None else reading.time)
        climb = self._occupied.climb(options.settle_seconds)
        settled = self._occupied.span_seconds >= options.settle_seconds
        largest = max(allocations.values(), default=0)
        probability = {
            horizon: either(chance(room, climb, horizon), self._rare(free, climb, largest, horizon, watched))
            for horizon in options.horizons
        }
        page = probability.get(options.page_horizon, max(probability.values()))
        predicted = self._latch.update(reading.time, page)
        until = seconds_until(room, climb)
        grower = self._grower() if climb else None
        state: DeviceState = "ok"
        if predicted:
            state = "predicted"
        elif until is not None and until < options.watch_seconds:
            state = "watch"
        return DeviceAssessment(
            time=reading.time,
            gpu=reading.gpu,
            uuid=reading.uuid,
            state=state,
            reason=_reason(room, floor, climb, grower, until, settled, predicted),
            headroom_bytes=free,
            floor_bytes=floor,
            growth_bytes_per_second=climb.slope if climb else 0.0 if settled else None,
            grower=grower,
            probability=probability,
            predicted=predicted,
            time_to_exhaustion_seconds=until,
            next_allocation_bytes=allocations,
            shared=None if reading.other_processes is None else reading.other_processes > 0,
            over_budget_bytes=over_budget(reading, self._utilization),
            next_start_bytes=next_start_bytes(reading, self._utilization, self._weights),
        )

    def _silent(
        self, reading: DeviceReading, allocations: dict[str, int], reason: str, free: int | None = None
    ) -> DeviceAssessment:
        return DeviceAssessment(
            time=reading.time,
            gpu=reading.gpu,
            uuid=reading.uuid,
            state="unknown",
            reason=reason,
            headroom_bytes=free,
            next_allocation_bytes=allocations,
            over_budget_bytes=over_budget(reading, self._utilization),
            next_start_bytes=next_start_bytes(reading, self._utilization, self._weights),
        )

    def _rare(self, free: int, climb: Trend | None, largest: int, horizon: float, watched: float) -> float:
        """P(an allocation that does not fit comes), by Jeffreys' rule over what has been watched."""
        left = free - (climb.slope * horizon if climb else 0.0)
        if largest <= left:
            return 0.0
        return min(1.0, 0.5 * horizon / (RARE_EVENT_SECONDS + watched))

    def _take(self, reading: DeviceReading, occupied: int) -> None:
        if self._since is None:
            self._since = reading.time
        self._highest = max(self._highest, occupied)
        self._occupied.add(reading.time, occupied)
        parts: dict[Owner, int | None] = {
            "server": reading.this_process,
            "neighbour": reading.other_processes,
            "unattributed": reading.unattributed,
        }
        for owner, part in parts.items():
            if part is None:
                self._owners[owner].clear()
            else:
                self._owners[owner].add(reading.time, part)

    def _dropped(self, occupied: int, total: int) -> bool:
        """Whether so much was given back that this is another life: a restart, a sleep, a neighbour that left."""
        return self._highest - occupied > self._options.restart_drop_ratio * total

    def _restart(self) -> None:
        self._since = None
        self._highest = 0
        self._occupied.clear()
        for window in self._owners.values():
            window.clear()

    def _grower(self) -> Owner | None:
        """Who climbs fastest; `None` where no part alone climbs."""
        climbs = {owner: window.climb(self._options.settle_seconds) for owner, window in self._owners.items()}
        rates = {owner: climb.slope for owner, climb in climbs.items() if climb is not None}
        return max(rates.items(), key=lambda item: item[1])[0] if rates else None


_GROWERS: Mapping[Owner | None, str] = {
    "server": "the server's own memory outside the pool grows",
    "neighbour": "another process on this GPU grows",
    "unattributed": "memory grows that cannot be attributed to a process",
    None: "memory outside the pool grows",
}


def _reason(
    room: int, floor: int, climb: Trend | None, grower: Owner | None, until: float | None, settled: bool, on: bool
) -> str:
    mib = 2**20
    if room <= 0:
        return f"{(room + floor) / mib:,.0f} MiB are free, less than the {floor / mib:,.0f} MiB one allocation may need"
    if climb is not None and until is not None:
        rate = climb.slope * 3600 / mib
        return (
            f"{_GROWERS[grower]} by {rate:,.0f} MiB an hour; the {room / mib:,.0f} MiB left last {until / 60:,.0f} min"
        )
    if on:
        return "the last alarm has not been quiet for long enough"
    if not settled:
        return f"{(room + floor) / mib:,.0f} MiB are free; not watched for long enough to tell growth"
    return f"steady with {(room + floor) / mib:,.0f} MiB free"
