"""Record what the NVML of this machine says, as a fixture for the tests.

    scripts/record-nvml [--out FILE] [--calls 1000]

Nothing on the GPU is changed. Of each query it keeps the answer or NVML's code for refusing it, and how long it takes.
UUIDs are replaced by made-up ones and PIDs by 1, 2, …; names of processes and of the machine are not asked for.
Send the file along with a bug report, or put it into tests/data/nvml: the tests replay every recording there.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from exporter.errors import SourceError
from exporter.sources.nvml import MEMORY_V2, NvmlSource

DEVICE_QUERIES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "name": ("nvmlDeviceGetName", ()),
    "memory_v2": ("nvmlDeviceGetMemoryInfo", (MEMORY_V2,)),
    "memory_v1": ("nvmlDeviceGetMemoryInfo", ()),
    "processes_v3": ("nvmlDeviceGetComputeRunningProcesses_v3", ()),
    "processes_v2": ("nvmlDeviceGetComputeRunningProcesses_v2", ()),
    "minor": ("nvmlDeviceGetMinorNumber", ()),
    "mig_mode": ("nvmlDeviceGetMigMode", ()),
    "max_mig_devices": ("nvmlDeviceGetMaxMigDeviceCount", ()),
    "virtualization": ("nvmlDeviceGetVirtualizationMode", ()),
    "architecture": ("nvmlDeviceGetArchitecture", ()),
}


class Recorder:
    """Asks one thing at a time and keeps what came of it."""

    def __init__(self, nvml: Any, calls: int) -> None:
        self._nvml = nvml
        self._calls = calls
        self._pids: dict[int, int] = {}

    def ask(self, function: str, *arguments: Any) -> dict[str, Any]:
        """The answer as plain values, or the code of the refusal, and the time a call takes."""
        call = getattr(self._nvml, function, None)
        if call is None:
            return {"error": "not in this pynvml"}
        try:
            answer = call(*arguments)
        except self._nvml.NVMLError as error:
            return {"error": error.value}
        return {"value": self._plain(answer), **self._timed(lambda: call(*arguments))}

    def device(self, handle: Any) -> dict[str, Any]:
        """Every query of one handle."""
        return {key: self.ask(function, handle, *rest) for key, (function, rest) in DEVICE_QUERIES.items()}

    def _timed(self, call: Callable[[], Any]) -> dict[str, float]:
        walls = []
        for _ in range(max(2, self._calls)):
            started = time.perf_counter()
            call()
            walls.append(time.perf_counter() - started)
        return {
            "median_ms": round(statistics.median(walls) * 1e3, 4),
            "p99_ms": round(statistics.quantiles(walls, n=100)[98] * 1e3, 4),
        }

    def _plain(self, answer: Any) -> Any:
        if isinstance(answer, bytes):
            return answer.decode(errors="replace")
        if isinstance(answer, list):
            return [self._plain(entry) for entry in answer]
        if hasattr(answer, "usedGpuMemory"):
            pid = self._pids.setdefault(answer.pid, len(self._pids) + 1)
            return {"pid": pid, "used": answer.usedGpuMemory}
        if hasattr(answer, "total"):
            return {key: getattr(answer, key) for key in ("total", "used", "free", "reserved") if hasattr(answer, key)}
        return answer


def record(nvml: Any, calls: int) -> dict[str, Any]:
    """Everything, as one JSON document. NVML must be initialised."""
    recorder = Recorder(nvml, calls)
    devices = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        found = {"index": index, "uuid": f"GPU-{index:08d}", **recorder.device(handle), "slices": []}
        for slot in range(found["max_mig_devices"].get("value") or 0):
            try:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
            except nvml.NVMLError:
                continue
            found["slices"].append({"slot": slot, "uuid": f"MIG-{index:08d}-{slot}", **recorder.device(part)})
        devices.append(found)
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "pynvml": version("nvidia-ml-py"),
        "driver": recorder.ask("nvmlSystemGetDriverVersion"),
        "nvml": recorder.ask("nvmlSystemGetNVMLVersion"),
        "cuda": recorder.ask("nvmlSystemGetCudaDriverVersion_v2"),
        "devices": devices,
        "tick": _tick(calls),
    }


def _tick(calls: int) -> dict[str, Any]:
    """How long this project's own tick takes over all GPUs."""
    source = NvmlSource()
    try:
        source.read(0.0)
        walls = []
        for tick in range(max(2, calls)):
            started = time.perf_counter()
            source.read(float(tick))
            walls.append(time.perf_counter() - started)
    except SourceError as error:
        return {"error": error.reason}
    finally:
        source.close()
    return {
        "median_ms": round(statistics.median(walls) * 1e3, 4),
        "p99_ms": round(statistics.quantiles(walls, n=100)[98] * 1e3, 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("nvml.json"))
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        print(f"NVML cannot be initialised: {error}. Is this a machine with an NVIDIA driver?", file=sys.stderr)
        return 1
    try:
        options.out.write_text(json.dumps(record(pynvml, options.calls), indent=1) + "\n")
    finally:
        pynvml.nvmlShutdown()
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
