"""The memory outside the KV pool over time: each GPU and the container, read and assessed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from exporter.forecast.device import DeviceAssessment, DeviceForecaster, DeviceOptions
from exporter.forecast.host import HostForecaster, HostOptions
from exporter.reading import DeviceReading, HostReading
from exporter.snapshot import DeviceStatus, HostStatus


@dataclass(frozen=True, slots=True)
class Serving:
    """What the server was doing at this tick, as far as it matters to memory outside the pool."""

    up: bool = False
    next_allocation_bytes: Mapping[str, int] = field(default_factory=dict)
    kv_offloading_gib: float | None = None
    gpu_memory_utilization: float | None = None
    """Of the one server there is; several share their GPUs' memory, and no one's share can be told."""
    weight_bytes: int | None = None
    """Of the one server there is, on each tensor-parallel rank; estimated from its model's config."""


def together(servers: Sequence[Serving]) -> Serving:
    """What several servers of one pod are doing, as their GPUs and their container see it."""
    up = [server for server in servers if server.up]
    allocations: dict[str, int] = {}
    for server in up:
        for what, size in server.next_allocation_bytes.items():
            allocations[what] = max(size, allocations.get(what, 0))
    offloading = [server.kv_offloading_gib for server in up if server.kv_offloading_gib is not None]
    utilization, weights = (up[0].gpu_memory_utilization, up[0].weight_bytes) if len(up) == 1 else (None, None)
    return Serving(bool(up), allocations, sum(offloading) if offloading else None, utilization, weights)


class DeviceSource(Protocol):
    """The server's GPUs; raises `SourceError`."""

    def read(self, now: float) -> tuple[DeviceReading, ...]:
        """Every GPU once."""

    def close(self) -> None:
        """Let go of the driver."""


class HostMemorySource(Protocol):
    """The container's memory; raises `SourceError`."""

    def read(self, now: float) -> HostReading:
        """The container once."""

    def close(self) -> None:
        """Read no more."""


class DeviceWatch:
    """Follows the server's GPUs, each by its UUID."""

    def __init__(self, source: DeviceSource, options: DeviceOptions | None = None) -> None:
        self._source = source
        self._options = options
        self._forecasters: dict[str, DeviceForecaster] = {}

    def read(self, now: float, serving: Serving) -> tuple[DeviceStatus, ...]:
        """Every GPU with its risk."""
        readings = self._source.read(now)
        present = {reading.uuid for reading in readings}
        self._forecasters = {uuid: kept for uuid, kept in self._forecasters.items() if uuid in present}
        return tuple(DeviceStatus(reading, self._assess(reading, serving)) for reading in readings)

    def close(self) -> None:
        """Let go of the driver."""
        self._source.close()

    def _assess(self, reading: DeviceReading, serving: Serving) -> DeviceAssessment:
        if reading.uuid not in self._forecasters:
            self._forecasters[reading.uuid] = DeviceForecaster(self._options)
        forecaster = self._forecasters[reading.uuid]
        return forecaster.observe(
            reading,
            serving.next_allocation_bytes,
            serving=serving.up,
            gpu_memory_utilization=serving.gpu_memory_utilization,
            weight_bytes=serving.weight_bytes,
        )


class HostWatch:
    """Follows the container."""

    def __init__(self, source: HostMemorySource, options: HostOptions | None = None) -> None:
        self._source = source
        self._forecaster = HostForecaster(options)

    def read(self, now: float, serving: Serving) -> HostStatus:
        """The container with its risk."""
        reading = self._source.read(now)
        risk = self._forecaster.observe(reading, kv_offloading_gib=serving.kv_offloading_gib, serving=serving.up)
        return HostStatus(reading, risk)

    def close(self) -> None:
        """Read no more."""
        self._source.close()
