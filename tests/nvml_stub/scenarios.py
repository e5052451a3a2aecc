"""What is done with the real pynvml and the stub, in a process of its own; each returns what JSON can carry."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from exporter.errors import SourceError
from exporter.reading import DeviceReading
from exporter.sources.device import ProcessView
from exporter.sources.gpus import GpuSource
from exporter.sources.nvml import NvmlSource, PynvmlLibrary
from tests.nvml_stub.stub import GIB, NOT_AVAILABLE, Stub, slice_slot


def shown(readings: tuple[DeviceReading, ...]) -> list[dict[str, Any]]:
    """Readings as plain values."""
    return [{**dataclasses.asdict(reading), "gpu": reading.gpu} for reading in readings]


def outcome(source: NvmlSource, now: float) -> Any:
    """The readings, or the word for why there are none."""
    try:
        return shown(source.read(now))
    except SourceError as error:
        return error.reason


def ordinary() -> Any:
    """One card on a current driver."""
    Stub().gpu()
    return outcome(NvmlSource(), 5.0)


def no_library() -> Any:
    """No driver at all: what a tick says, and whether pynvml was imported for it."""
    said = outcome(NvmlSource(), 0.0)
    return {"said": said, "imported": "pynvml" in sys.modules}


def absent_init() -> Any:
    """A library without the function that initialises it."""
    return outcome(NvmlSource(), 0.0)


def memory_v2_unknown() -> Any:
    """WSL: memory v2 answers Unknown Error, v1 is fine."""
    stub = Stub()
    stub.gpu()
    stub.fault("nvmlDeviceGetMemoryInfo_v2", 999)
    return outcome(NvmlSource(), 0.0)


def memory_code() -> Any:
    """Both versions of the memory query answer the code in CODE."""
    stub = Stub()
    stub.gpu()
    stub.process(0, os.getpid(), 741326848)
    code = int(os.environ["CODE"])
    stub.fault("nvmlDeviceGetMemoryInfo_v2", code)
    stub.fault("nvmlDeviceGetMemoryInfo", code)
    source = NvmlSource(machine=lambda: (128 * GIB, 100 * GIB), processes=_mine)
    return outcome(source, 0.0)


def init_code() -> Any:
    """Initialisation answers the code in CODE."""
    Stub().fault("nvmlInitWithFlags", int(os.environ["CODE"]))
    source = NvmlSource()
    return {"said": outcome(source, 0.0), "references": Stub().references}


def growing_unified() -> Any:
    """GB10: the memory query is not supported while the process list works; the process takes 512 MiB more."""
    stub = Stub()
    stub.gpu()
    stub.fault("nvmlDeviceGetMemoryInfo_v2", 3)
    stub.fault("nvmlDeviceGetMemoryInfo", 3)
    source = NvmlSource(machine=lambda: (128 * GIB, 100 * GIB), processes=_mine)
    stub.process(0, os.getpid(), 741326848)
    before = outcome(source, 0.0)
    stub.forget_processes(0)
    stub.process(0, os.getpid(), 1278197760)
    return [before, outcome(source, 1.0)]


def nonsense() -> Any:
    """The driver answers success and figures that cannot be a memory."""
    stub = Stub()
    stub.gpu()
    stub.memory(0, total=0, used=0, free=0)
    empty = outcome(NvmlSource(), 0.0)
    stub.memory(0, total=GIB, used=3 * GIB, free=0)
    return [empty, outcome(NvmlSource(), 0.0)]


def unknown_on_second_poll() -> Any:
    """After a daemon-reload everything answers Unknown Error; a minute later the devices are back."""
    stub = Stub()
    stub.gpu()
    source = NvmlSource()
    said = [outcome(source, 0.0)]
    stub.fault("nvmlDeviceGetMemoryInfo_v2", 999)
    stub.fault("nvmlDeviceGetMemoryInfo", 999)
    stub.fault("nvmlInitWithFlags", 999)
    said.append(outcome(source, 1.0))
    references = [stub.references]
    before = stub.inits, stub.calls
    attempts = 0
    for second in range(2, 60):
        calls = stub.calls
        outcome(source, float(second))
        attempts += stub.calls > calls
    said.append(outcome(source, 60.0))
    for function in ("nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        stub.fault(function, 0)
    back = next(second for second in range(61, 200) if isinstance(outcome(source, float(second)), list))
    references.append(stub.references)
    return {"said": said, "attempts": attempts, "back": back, "references": references, "before": before}


def one_lost() -> Any:
    """One of two GPUs falls off the bus in the middle of a run and is back after a reset."""
    stub = Stub()
    stub.devices(2)
    stub.gpu(0)
    stub.gpu(1)
    source = NvmlSource()
    said = [outcome(source, 0.0)]
    stub.fault("nvmlDeviceGetMemoryInfo_v2", 15, slot=1)
    stub.fault("nvmlDeviceGetMemoryInfo", 15, slot=1)
    said.append(outcome(source, 1.0))
    inits = stub.inits
    for second in range(2, 300):
        outcome(source, float(second))
    attempts = stub.inits - inits
    stub.fault("nvmlDeviceGetMemoryInfo_v2", 0, slot=1)
    stub.fault("nvmlDeviceGetMemoryInfo", 0, slot=1)
    for second in range(300, 400):
        said_last = outcome(source, float(second))
    said.append(said_last)
    return {"said": said, "attempts": attempts, "references": stub.references}


def mig() -> Any:
    """A MIG container on an H200: the GPU itself is refused, its 1g.35gb slice is not."""
    stub = Stub()
    stub.gpu(0, total=141 * GIB, used=0)
    stub.mig(0, 1)
    stub.identity(slice_slot(0, 0), "MIG-11111111", "NVIDIA H200 MIG 1g.35gb")
    stub.memory(slice_slot(0, 0), int(32.5 * GIB), 20 * GIB)
    stub.fault("nvmlDeviceGetMigMode", 4, slot=0)
    stub.fault("nvmlDeviceGetMemoryInfo", 4, slot=0)
    stub.fault("nvmlDeviceGetMemoryInfo_v2", 4, slot=0)
    return outcome(NvmlSource(), 0.0)


def two_slices() -> Any:
    """A GPU cut in two: its slices are read, and one of them can be chosen by UUID."""
    stub = Stub()
    stub.gpu()
    stub.mig(0, 2)
    for index, used in enumerate((10 * GIB, 30 * GIB)):
        stub.identity(slice_slot(0, index), f"MIG-{index}", "slice")
        stub.memory(slice_slot(0, index), 40 * GIB, used)
    return [outcome(NvmlSource(), 0.0), outcome(NvmlSource(("MIG-1",)), 0.0)]


def attribution() -> Any:
    """The server, a neighbour that can be seen, and a process whose size the driver hides."""
    stub = Stub()
    stub.gpu(used=70 * GIB)
    stub.process(0, os.getpid(), 60 * GIB)
    stub.process(0, os.getppid(), 4 * GIB)
    stub.process(0, 7, NOT_AVAILABLE)
    return outcome(NvmlSource(processes=_mine), 0.0)


def foreign_pids() -> Any:
    """Inside a container the driver lists the host's PID 28290, which is not in /proc here."""
    stub = Stub()
    stub.gpu(used=70 * GIB)
    stub.process(0, 28290, 60 * GIB)
    nobody = ProcessView(frozenset({1}), lambda pid: pid in (1, os.getpid()))
    return outcome(NvmlSource(processes=lambda _now: nobody), 0.0)


def process_code() -> Any:
    """The process list answers the code in CODE."""
    stub = Stub()
    stub.gpu()
    stub.fault("nvmlDeviceGetComputeRunningProcesses_v3", int(os.environ["CODE"]))
    return outcome(NvmlSource(), 0.0)


def no_devices() -> Any:
    """The driver works and shows nothing."""
    stub = Stub()
    stub.devices(0)
    return {"said": outcome(NvmlSource(), 0.0), "references": stub.references}


def many_ticks() -> Any:
    """100,000 ticks, with the device lost and found a hundred times on the way."""
    stub = Stub()
    stub.gpu()
    stub.process(0, os.getpid(), 60 * GIB)
    source = GpuSource(PynvmlLibrary(), processes=_mine)
    down = 0
    before: dict[str, int] = {}
    for tick in range(100_000):
        if tick % 1000 == 0:
            stub.fault("nvmlDeviceGetMemoryInfo", 15 if tick else 0)
            stub.fault("nvmlDeviceGetMemoryInfo_v2", 15 if tick else 0)
        elif tick % 1000 == 20:
            stub.fault("nvmlDeviceGetMemoryInfo", 0)
            stub.fault("nvmlDeviceGetMemoryInfo_v2", 0)
        try:
            source.read(float(tick))
        except SourceError:
            down += 1
        if tick == 20_000:
            before = _held()
    after = _held()
    references = stub.references
    source.close()
    closed = stub.references
    return {"down": down, "before": before, "after": after, "references": references, "closed": closed}


def _mine(_now: float) -> ProcessView:
    return ProcessView(frozenset({os.getpid()}), lambda pid: Path(f"/proc/{pid}").exists())


def _held() -> dict[str, int]:
    """Resident KiB and open descriptors of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "kib": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


if __name__ == "__main__":
    json.dump(globals()[sys.argv[1]](), sys.stdout)
