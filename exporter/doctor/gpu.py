"""What is found about the GPUs."""

from collections.abc import Callable, Mapping, Sequence

from exporter.doctor.finding import Finding, Level, gib
from exporter.errors import SourceError
from exporter.forecast.device import DeviceForecaster, DeviceOptions
from exporter.forecast.startup import HIGH_UTILIZATION, SMALL_CARD_BYTES
from exporter.reading import DeviceReading
from exporter.sources.gpu_owner import Ownership
from exporter.sources.gpus import GpuSource

PART = "GPU"
NO_DEVICE_RISK = 'no risk="device": a CUDA out-of-memory outside the KV pool comes unannounced'

_ABSENT = frozenset({"library_not_found", "driver_not_loaded", "no_devices"})
"""Reasons that mean "not here" rather than "broken"."""
_RULES: Mapping[str, str] = {
    "configured": "VLLM_HEADROOM_GPUS",
    "pod_resources": "the kubelet's pod-resources socket",
    "environment": "the environment of the server's process",
    "process_memory": "the memory its process holds",
    "all_visible": "nothing better: all that can be seen",
}


def gpu_findings(
    source: GpuSource | None,
    now: float,
    *,
    driver: Callable[[], str | None] = lambda: None,
    utilization: float | None = None,
    allocations: Mapping[str, int] | None = None,
) -> list[Finding]:
    """Everything about the GPUs; `source` is `None` where they are switched off.

    `utilization` is the server's own setting, `allocations` its plausible next allocations, where they are known.
    """
    if source is None:
        return [Finding(PART, "note", "switched off", "VLLM_HEADROOM_GPUS=none", NO_DEVICE_RISK)]
    try:
        readings = source.read(now)
    except SourceError as error:
        level: Level = "missing" if error.reason in _ABSENT else "fault"
        change = str(error).removeprefix("NVML: ")
        return [Finding(PART, level, f"no reading: {error.reason.replace('_', ' ')}", "", NO_DEVICE_RISK, change)]
    version = driver()
    found = [Finding(PART, "ok", f"NVML works{f', driver {version}' if version else ''}")]
    if source.ownership is not None:
        found += _ownership(source.ownership)
    for reading in readings:
        found += _device(reading, utilization, allocations or {})
    return found + _attribution(readings)


def _ownership(owned: Ownership) -> list[Finding]:
    count = len(owned.devices)
    seen = f"{count} GPU{'s' if count != 1 else ''} of this server: {owned.detail}"
    if owned.rule != "all_visible":
        mixed = [note for note in owned.notes if "CUDA_DEVICE_ORDER" in note]
        found = [Finding(PART, "ok", seen, _RULES[owned.rule])]
        change = "CUDA_DEVICE_ORDER=PCI_BUS_ID in vLLM's container"
        return found + [Finding(PART, "warning", note, "", "", change) for note in mixed]
    alone = count <= 1
    return [
        Finding(
            PART,
            "note" if alone else "missing",
            seen,
            _RULES[owned.rule],
            "" if alone else "GPUs of other pods may be watched as this server's",
            "" if alone else "; ".join((*owned.notes, "or name them in VLLM_HEADROOM_GPUS by UUID")),
        )
    ]


def _device(reading: DeviceReading, utilization: float | None, allocations: Mapping[str, int]) -> list[Finding]:
    name = f"GPU {reading.gpu} {reading.uuid}" + (f" {reading.name}" if reading.name else "")
    if reading.free is None:
        reason = reading.missing.get("memory", "absent")
        lost = reason not in ("not_supported", "no_permission", "absent")
        change = "allow the container its /dev/nvidia* devices" if reason == "no_permission" else ""
        level: Level = "fault" if lost else "missing"
        return [Finding(PART, level, f"{name}: memory {reason.replace('_', ' ')}", "", NO_DEVICE_RISK, change)]
    kind = "of the machine's memory, which it shares" if reading.unified else "free"
    reserved = f", {gib(reading.reserved)} reserved" if reading.reserved else ""
    seen = f"{name}: {gib(reading.used)} used{reserved}, {gib(reading.free)} {kind} of {gib(reading.total)}"
    risk = DeviceForecaster(DeviceOptions(gpu_memory_utilization=utilization)).observe(reading, allocations)
    found = [Finding(PART, "ok", seen)]
    if risk.predicted:
        change = "lower gpu_memory_utilization or max_num_batched_tokens: this is memory outside the KV pool"
        found.append(Finding(PART, "fault", f"GPU {reading.gpu}: {risk.reason}", "the room left now", "", change))
    if utilization is not None and risk.over_budget_bytes is not None and reading.total is not None:
        found += _budget(reading, utilization, risk.over_budget_bytes, reading.total)
    return found


def _budget(reading: DeviceReading, utilization: float, over: int, total: int) -> list[Finding]:
    own = "gpu_memory_utilization"
    found = []
    if over > 0:
        seen = f"GPU {reading.gpu}: {gib(over)} beyond {own} {utilization:g}: CUDA graphs and first requests lie on top"
        found.append(Finding(PART, "note", seen))
    if utilization >= HIGH_UTILIZATION and total <= SMALL_CARD_BYTES:
        seen = f"{own} {utilization:g} on a card of {gib(total)} leaves too little for CUDA graphs"
        found.append(Finding(PART, "warning", seen, "", "", f"{own} 0.96 or less"))
    return found


def _attribution(readings: Sequence[DeviceReading]) -> list[Finding]:
    known = [reading for reading in readings if reading.free is not None]
    if not known:
        return []
    if all(reading.this_process is not None for reading in known):
        others = sum(reading.other_processes or 0 for reading in known)
        seen = f"memory is told apart by process; {gib(others)} are other processes'"
        return [Finding(PART, "ok", seen, "NVML's process list")]
    why = sorted({reading.missing.get("processes", "no process of the server") for reading in known})
    return [
        Finding(
            PART,
            "missing",
            f"whose memory it is cannot be told: {', '.join(reason.replace('_', ' ') for reason in why)}",
            "",
            "a neighbour that grows is not told from the server",
            "hostPID: true shows the host's process ids; without it memory stays unattributed",
        )
    ]
