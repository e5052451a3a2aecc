"""What a GPU says of its memory, as a value: sanity, unified memory, and whose the memory is.

Nothing here knows NVML: a `Device` is whatever answers these questions, so a fake or a recording does too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from exporter.reading import DeviceReading

FATAL = frozenset({"uninitialized", "driver_not_loaded", "gpu_lost", "reset_required", "driver_mismatch"})
"""Reasons after which no other field of the device can be expected either."""


class DeviceError(Exception):
    """One question to a device, or to the library, failed; `reason` is a short word fit for a label."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def fatal(self) -> bool:
        """Whether the device or the driver is gone, rather than this one field."""
        return self.reason in FATAL


@dataclass(frozen=True, slots=True)
class Memory:
    """A device's memory in bytes; `reserved` is the driver's own where it is told apart from `used`."""

    total: int
    used: int
    free: int
    reserved: int | None = None

    @property
    def sane(self) -> bool:
        """Whether the figures can be a memory: some drivers answer nonsense instead of "not supported"."""
        return self.total > 0 and 0 <= self.used <= self.total and 0 <= self.free <= self.total


@dataclass(frozen=True, slots=True)
class Identity:
    """Which device this is. `minor` is the N of /dev/nvidiaN; the PCI address orders devices as NVML does."""

    index: int
    uuid: str
    name: str | None = None
    pci: str | None = None
    minor: int | None = None
    mig_index: int | None = None
    parent_uuid: str | None = None


class Device(Protocol):
    """One GPU or MIG slice. Every method may raise `DeviceError`."""

    @property
    def identity(self) -> Identity:
        """Which device this is."""

    def memory(self) -> Memory:
        """Total, used, free, reserved."""

    def processes(self) -> Mapping[int, int | None]:
        """PID, as the driver numbers it for this process, → bytes held, or `None` where the driver hides it."""


@dataclass(frozen=True, slots=True)
class ProcessView:
    """The PIDs this process can see, and those of them that are the vLLM server's."""

    server: frozenset[int] = frozenset()
    visible: Callable[[int], bool] = lambda _pid: False


@dataclass(frozen=True, slots=True)
class Shares:
    """Bytes by owner; what cannot be told is `None`."""

    this_process: int | None = None
    other_processes: int | None = None
    unattributed: int | None = None
    listed: int | None = None
    problem: str | None = None


def attribute(held: Mapping[int, int | None], used: int | None, view: ProcessView) -> Shares:
    """Split `used` into the server's, other processes' and nobody's that can be named.

    A PID is believed only where it can be checked: it is the server's, or it is another process that can be seen.
    Where one of the server's own PIDs is listed, the list speaks our PID namespace, so the PIDs in it that cannot be
    seen belong to others; where none is, PIDs that cannot be seen are numbers of another namespace.
    """
    known = {pid: size for pid, size in held.items() if size is not None}
    listed = sum(known.values())
    ours = known.keys() & view.server
    theirs = {pid for pid in known if pid not in view.server and (ours or view.visible(pid))}
    attributed = sum(known[pid] for pid in ours) + sum(known[pid] for pid in theirs)
    return Shares(
        this_process=sum(known[pid] for pid in ours) if ours else None,
        other_processes=sum(known[pid] for pid in theirs) if ours or theirs else None,
        unattributed=None if used is None else max(0, used - attributed),
        listed=listed if known else None,
        problem=None if ours or theirs else "pid_namespace" if known else "no_processes",
    )


def read_device(
    device: Device, now: float, view: ProcessView, machine: Callable[[], tuple[int, int] | None]
) -> DeviceReading:
    """One device as it is now. `machine` gives total and available bytes of the host, for unified memory.

    A field that fails is absent and named in `missing`; raises `DeviceError` only where the device is gone.
    """
    missing: dict[str, str] = {}
    memory: Memory | None = None
    try:
        memory = device.memory()
    except DeviceError as fault:
        if fault.fatal or fault.reason == "unknown":
            raise  # "unknown" is what NVML answers when the devices were taken from the container
        missing["memory"] = fault.reason
    if memory is not None and not memory.sane:
        memory, missing["memory"] = None, "not_supported"
    held: Mapping[int, int | None] = {}
    try:
        held = device.processes()
    except DeviceError as fault:
        if fault.fatal:
            raise
        missing["processes"] = fault.reason
    identity = device.identity
    unified = missing.get("memory") == "not_supported" and identity.mig_index is None
    used = memory.used if memory else None
    if unified:
        sizes = [size for size in held.values() if size is not None]
        used = sum(sizes) if sizes else None
    shares = Shares(unattributed=used) if "processes" in missing else attribute(held, used, view)
    if shares.problem:
        missing["processes"] = shares.problem
    host = machine() if unified else None
    return DeviceReading(
        time=now,
        index=identity.index,
        uuid=identity.uuid,
        name=identity.name,
        mig_index=identity.mig_index,
        parent_uuid=identity.parent_uuid,
        total=memory.total if memory else host[0] if host else None,
        used=used,
        free=memory.free if memory else host[1] if host else None,
        reserved=memory.reserved if memory else None,
        this_process=shares.this_process,
        other_processes=shares.other_processes,
        unattributed=shares.unattributed,
        unified=unified,
        missing=missing,
    )
