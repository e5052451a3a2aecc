"""The server's GPUs, read once a tick through any library that answers as NVML does.

The library may be absent, refused, or lost at any tick; none of it stops anything else. While it is down, `read`
raises at once and the library is opened again after a delay that doubles, so a missing driver costs nothing.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from exporter.errors import SourceError
from exporter.reading import DeviceReading
from exporter.sources.device import Device, DeviceError, Identity, ProcessView, read_device
from exporter.sources.gpu_owner import Evidence, Ownership, choose

EXPLAINED: Mapping[str, str] = {
    "library_not_found": "libnvidia-ml.so.1 is not in this container: use runtimeClassName nvidia with "
    "NVIDIA_VISIBLE_DEVICES and NVIDIA_DRIVER_CAPABILITIES=utility, or mount the library",
    "driver_not_loaded": "the NVIDIA driver is not loaded on this machine, or /dev/nvidiactl is not in this container",
    "driver_mismatch": "the driver was replaced while its old library is still mounted: restart the pod",
    "no_permission": "the driver refuses this user: allow the container its /dev/nvidia* devices",
    "no_devices": "the driver works but shows no GPU: set NVIDIA_VISIBLE_DEVICES for this container",
    "gpu_lost": "the GPU fell off the bus: see the kernel log for Xid 79, drain the node and reset or replace it",
    "reset_required": "the GPU needs a reset before it can be used again",
    "unknown": "NVML says Unknown Error; often the devices were taken from the container by a systemctl daemon-reload: "
    "restart the pod, and use CDI or list the /dev/nvidia* devices to keep it from coming back",
}


class Library(Protocol):
    """NVML as this project needs it. Every method may raise `DeviceError`."""

    def open(self) -> None:
        """Load and initialise; balanced by one `close`."""

    def close(self) -> None:
        """Give everything back; handles are void afterwards."""

    def devices(self) -> Sequence[Device]:
        """Every GPU that can be seen in PCI order, a MIG-enabled one by its slices."""


class GpuSource:
    """GPU memory, once per `read`. All that is not NVML is passed in.

    `evidence` says what is known of the server's GPUs and is asked every `ownership_seconds`; `processes` gives the
    PIDs that can be seen; `machine` gives total and available bytes of the host, for unified memory.
    """

    def __init__(
        self,
        library: Library,
        gpus: Sequence[str] = ("auto",),
        *,
        evidence: Callable[[float], Evidence] = lambda _now: Evidence(),
        processes: Callable[[float], ProcessView] = lambda _now: ProcessView(),
        machine: Callable[[], tuple[int, int] | None] = lambda: None,
        ownership_seconds: float = 30.0,
        first_retry_seconds: float = 1.0,
        last_retry_seconds: float = 60.0,
    ) -> None:
        self.ownership: Ownership | None = None
        self.degraded: str | None = None
        """Why some GPUs were without figures at the last reading, while others had them."""
        self._gpus = tuple(gpus)
        self._library = library
        self._evidence = evidence
        self._processes = processes
        self._machine = machine
        self._ownership_seconds = ownership_seconds
        self._retry_seconds = (first_retry_seconds, last_retry_seconds)
        self._devices: dict[str, Device] = {}
        self._owned_at = 0.0
        self._failures = 0
        self._retry_at = 0.0
        self._reason = "unknown"

    def read(self, now: float) -> tuple[DeviceReading, ...]:
        """The server's GPUs at `now`; raises `SourceError` with source `nvml`.

        A GPU that is lost while others answer is returned without figures, and `missing` says why.
        """
        if (not self._devices or self._failures) and now >= self._retry_at:
            self._open(now)
        if not self._devices:
            raise _error(self._reason)
        view = self._processes(now)
        if self.ownership is None or now - self._owned_at >= self._ownership_seconds:
            self._own(now, view)
        assert self.ownership is not None  # noqa: S101 – _own sets it or raises
        readings, lost = [], []
        for identity in self.ownership.devices:
            try:
                readings.append(read_device(self._devices[identity.uuid], now, view, self._machine))
            except DeviceError as fault:
                lost.append(fault.reason)
                readings.append(_lost(identity, now, fault.reason))
        self.degraded = lost[0] if lost else None
        if lost:
            self._fail(lost[0], now, keep=len(lost) < len(readings))
        else:
            self._failures = 0
        return tuple(replace(reading, rule=self.ownership.rule) for reading in readings)

    def close(self) -> None:
        """Give NVML back; a later `read` opens it again."""
        self._release()

    def _release(self) -> None:
        if self._devices:
            self._devices = {}
            self.ownership = None
            with contextlib.suppress(DeviceError):
                self._library.close()

    def _open(self, now: float) -> None:
        self._release()
        try:
            self._library.open()
        except DeviceError as fault:
            self._fail(fault.reason, now)
        try:
            self._devices = {device.identity.uuid: device for device in self._library.devices()}
        except DeviceError as fault:
            self._abandon(fault.reason, now)
        if not self._devices:
            self._abandon("no_devices", now)

    def _abandon(self, reason: str, now: float) -> None:
        """Close what was opened but shows nothing, then fail."""
        with contextlib.suppress(DeviceError):
            self._library.close()
        self._fail(reason, now)

    def _fail(self, reason: str, now: float, keep: bool = False) -> None:
        """Plan the next opening; raise unless what still works is kept."""
        first, last = self._retry_seconds
        if now >= self._retry_at:
            self._retry_at = now + min(last, first * 2.0 ** min(self._failures, 30))
            self._failures += 1
        if not keep:
            self._release()
            self._reason = reason
            raise _error(reason)

    def _own(self, now: float, view: ProcessView) -> None:
        evidence = self._evidence(now)
        if evidence.held_uuids is None and view.server:
            held = frozenset(uuid for uuid, device in self._devices.items() if _holds(device, view.server))
            evidence = Evidence(evidence.pod_devices, evidence.environment, held, evidence.notes)
        self.ownership = choose([device.identity for device in self._devices.values()], self._gpus, evidence)
        self._owned_at = now


def _error(reason: str) -> SourceError:
    return SourceError("nvml", reason, f"NVML: {EXPLAINED.get(reason, reason.replace('_', ' '))}.")


def _lost(identity: Identity, now: float, reason: str) -> DeviceReading:
    return DeviceReading(
        time=now,
        index=identity.index,
        uuid=identity.uuid,
        name=identity.name,
        mig_index=identity.mig_index,
        parent_uuid=identity.parent_uuid,
        missing={"memory": reason, "processes": reason},
    )


def _holds(device: Device, pids: frozenset[int]) -> bool:
    try:
        return bool(device.processes().keys() & pids)
    except DeviceError:
        return False
