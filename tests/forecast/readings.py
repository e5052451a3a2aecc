"""Readings of a GPU and of host memory, as the sources give them."""

from collections.abc import Callable

from exporter.forecast.device import DeviceAssessment, DeviceForecaster
from exporter.forecast.host import HostAssessment, HostForecaster
from exporter.reading import DeviceReading, HostReading

GIB = 2**30
MIB = 2**20


def device(
    time: float,
    total: int,
    free: int,
    *,
    reserved: int | None = None,
    this_process: int | None = None,
    other_processes: int | None = None,
    unified: bool = False,
) -> DeviceReading:
    """A GPU with so much free."""
    used = total - free - (reserved or 0)
    known = [part for part in (this_process, other_processes) if part is not None]
    return DeviceReading(
        time=time,
        index=0,
        uuid="GPU-0",
        total=total,
        used=used,
        free=free,
        reserved=reserved,
        this_process=this_process,
        other_processes=other_processes,
        unattributed=used - sum(known),
        unified=unified,
    )


def host(
    time: float,
    *,
    limit: int | None = None,
    committed: int | None = None,
    shmem: int | None = None,
    available: int | None = None,
    machine: int = 512 * GIB,
    scope: str = "container",
) -> HostReading:
    """A container with so much memory that cannot be reclaimed, on a machine."""
    return HostReading(
        time=time,
        scope=scope,
        rule="",
        current=committed,
        limit=limit,
        shmem=shmem,
        committed=committed,
        machine_total=machine,
        machine_available=machine // 2 if available is None else available,
    )


def follow(
    reading: Callable[[float], DeviceReading],
    seconds: int,
    allocations: dict[str, int] | None = None,
    forecaster: DeviceForecaster | None = None,
    start: int = 0,
) -> list[DeviceAssessment]:
    """Assessments of one GPU, one reading a second."""
    fed = forecaster or DeviceForecaster()
    return [fed.observe(reading(float(second)), allocations) for second in range(start, start + seconds)]


def follow_host(
    reading: Callable[[float], HostReading], seconds: int, forecaster: HostForecaster | None = None
) -> list[HostAssessment]:
    """Assessments of one container, one reading a second."""
    fed = forecaster or HostForecaster()
    return [fed.observe(reading(float(second))) for second in range(seconds)]
