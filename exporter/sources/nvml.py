"""GPU memory by NVML: the only module that imports pynvml, and only once the driver's library is known to load."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from exporter.reading import DeviceReading
from exporter.sources.device import Device, DeviceError, Identity, Memory
from exporter.sources.gpus import GpuSource, Library
from exporter.sources.patience import Patience

REASONS: Mapping[int, str] = {
    1: "uninitialized",
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    6: "not_found",
    9: "driver_not_loaded",
    12: "library_not_found",
    13: "function_not_found",
    15: "gpu_lost",
    16: "reset_required",
    17: "blocked_by_os",
    18: "driver_mismatch",
    25: "function_not_found",  # a struct version this driver does not know
}
"""NVML's return codes as words fit for a label; any other code is `unknown`."""

MEMORY_V2 = 0x02000028
"""`nvmlMemory_v2`: the struct that tells reserved memory apart from used."""


class NvmlSource(GpuSource):
    """The GPUs of this machine; `library` is NVML unless another is given. No call is waited for longer than asked."""

    def __init__(
        self,
        gpus: Sequence[str] = ("auto",),
        *,
        library: Library | None = None,
        timeout_seconds: float = 2.0,
        **rest: Any,
    ) -> None:
        super().__init__(library or PynvmlLibrary(), gpus, **rest)
        self._patience = Patience("nvml", super().read, timeout_seconds)

    def read(self, now: float) -> tuple[DeviceReading, ...]:
        """As `GpuSource.read`; raises `SourceError` with reason `timeout` while the driver does not answer."""
        return self._patience.read(now)

    def close(self) -> None:
        """Give NVML back, unless a call into it hangs: then only the end of the process does."""
        self._patience.close()
        if not self._patience.hanging:
            super().close()


class PynvmlLibrary:
    """The real NVML through pynvml, imported when first opened: without a driver its 5 MiB are never spent."""

    def __init__(self) -> None:
        self._nvml: Any = None

    def open(self) -> None:
        """Load the driver's library and initialise it."""
        if self._nvml is None:
            try:
                ctypes.CDLL("libnvidia-ml.so.1")
            except OSError:
                raise DeviceError("library_not_found") from None
            import pynvml

            self._nvml = pynvml
        self._ask("nvmlInit")

    def close(self) -> None:
        """Shut NVML down."""
        self._ask("nvmlShutdown")

    def driver_version(self) -> str | None:
        """The driver's version, while the library is open."""
        return _text(self._try("nvmlSystemGetDriverVersion")) or None

    def devices(self) -> list[Device]:
        """Every GPU in PCI order; a MIG-enabled GPU is replaced by its slices."""
        found: list[Device] = []
        for index in range(self._ask("nvmlDeviceGetCount")):
            handle = self._ask("nvmlDeviceGetHandleByIndex", index)
            found += self._slices(index, handle) or [_PynvmlDevice(self._ask, handle, self._identity(index, handle))]
        return found

    def _slices(self, index: int, handle: Any) -> list[Device]:
        """MIG slices of a GPU. In a container the GPU itself may be refused while its slice is not."""
        try:
            if not self._ask("nvmlDeviceGetMigMode", handle)[0]:
                return []
        except DeviceError as fault:
            if fault.reason != "no_permission":
                return []
        parent = self._try("nvmlDeviceGetUUID", handle)
        slots = range(self._try("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)
        handles = ((slot, self._try("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)) for slot in slots)
        return [
            _PynvmlDevice(self._ask, part, self._identity(index, part, slot, parent))
            for slot, part in handles
            if part is not None
        ]

    def _identity(self, index: int, handle: Any, slot: int | None = None, parent: str | None = None) -> Identity:
        pci = None if slot is not None else self._try("nvmlDeviceGetPciInfo", handle)
        return Identity(
            index=index,
            uuid=_text(self._ask("nvmlDeviceGetUUID", handle)),
            name=_text(self._try("nvmlDeviceGetName", handle)) or None,
            pci=_text(pci.busId) if pci is not None else None,
            minor=None if slot is not None else self._try("nvmlDeviceGetMinorNumber", handle),
            mig_index=slot,
            parent_uuid=_text(parent) or None,
        )

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            raise DeviceError(REASONS.get(error.value, "unknown")) from None

    def _try(self, function: str, *arguments: Any) -> Any:
        """The answer, or `None` where this one question fails."""
        try:
            return self._ask(function, *arguments)
        except DeviceError:
            return None


class _PynvmlDevice:
    """One NVML handle. Which version of a call this driver knows is found out once."""

    def __init__(self, ask: Callable[..., Any], handle: Any, identity: Identity) -> None:
        self.identity = identity
        self._ask = ask
        self._handle = handle
        self._memory_versions: tuple[int | None, ...] = (MEMORY_V2, None)
        self._process_calls: tuple[str, ...] = (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetComputeRunningProcesses_v2",
        )

    def memory(self) -> Memory:
        """Memory v2, in which `reserved` is apart, or v1 where this driver does not answer v2."""
        for version in self._memory_versions:
            try:
                info = self._ask("nvmlDeviceGetMemoryInfo", self._handle, version)
            except DeviceError:
                if version is None:
                    raise
                continue
            self._memory_versions = (version,) if version is None else (version, None)
            return Memory(info.total, info.used, info.free, info.reserved if version else None)
        raise DeviceError("not_supported")

    def processes(self) -> dict[int, int | None]:
        """PID → bytes; a process listed twice (one entry per compute instance) is summed."""
        for call in self._process_calls:
            try:
                listed = self._ask(call, self._handle)
            except DeviceError as fault:
                if fault.reason != "function_not_found":
                    raise
                continue
            self._process_calls = (call,)
            held: dict[int, int | None] = {}
            for process in listed:
                size, before = process.usedGpuMemory, held.get(process.pid)
                held[process.pid] = before if size is None else size + (before or 0)
            return held
        raise DeviceError("not_supported")


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
