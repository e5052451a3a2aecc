"""What is found about the server's processes and the host memory they live in."""

from pathlib import Path

from exporter.doctor.finding import Finding, gib
from exporter.forecast.host import HostForecaster
from exporter.reading import HostReading
from exporter.sources.server_process import ServerProcess

SMALL_SHM_BYTES = 64 * 2**20
"""What container runtimes give when nothing is asked for."""


def process_findings(server: ServerProcess) -> list[Finding]:
    """Whether the server's processes can be seen, and what of them."""
    part = "process"
    found = server.find()
    if found is None:
        return [
            Finding(
                part,
                "missing",
                "no process of a vLLM server can be seen",
                "",
                "GPU memory is not attributed, and host memory is not the server's own",
                "shareProcessNamespace: true in the pod's spec",
            )
        ]
    seen = f"vLLM is process {found.main.pid}, {len(found.pids)} processes in all"
    findings = [Finding(part, "ok", seen, "its command line")]
    try:
        server.environment()
    except OSError:
        findings.append(
            Finding(
                part,
                "missing",
                f"/proc/{found.main.pid}/environ may not be read",
                "",
                "CUDA_VISIBLE_DEVICES and the container's own control group stay unseen",
                "runAsUser: the same as vLLM's container",
            )
        )
    return findings


def host_findings(reading: HostReading | None, offloading_gib: float | None = None) -> list[Finding]:
    """Everything about host memory; `reading` is `None` where it is switched off."""
    part = "host"
    if reading is None:
        cost = 'no risk="host": an OOM kill comes unannounced'
        return [Finding(part, "note", "switched off", "VLLM_HEADROOM_HOST=none", cost)]
    found = [_memory(part, reading), *_shm(part, reading)]
    if reading.oom_kills:
        seen = f"the kernel killed it {reading.oom_kills} times for memory"
        found.append(Finding(part, "warning", seen, "memory.events", "", "raise resources.limits.memory"))
    if reading.current is not None and reading.pressure is None:
        found.append(Finding(part, "note", "no pressure stall information (PSI)", "", "", "boot the node with psi=1"))
    risk = HostForecaster().observe(reading, kv_offloading_gib=offloading_gib)
    if risk.predicted:
        change = "raise resources.limits.memory, or lower kv_offloading_size"
        found.append(Finding(part, "fault", risk.reason, "the room left now", "", change))
    return found


def _memory(part: str, reading: HostReading) -> Finding:
    if reading.scope == "machine":
        seen = f"only the machine: {gib(reading.machine_available)} of {gib(reading.machine_total)} available"
        return Finding(
            part,
            "missing",
            seen,
            "/proc/meminfo",
            "the container's use, limit and OOM kills are unknown",
            "shareProcessNamespace: true and runAsUser as vLLM's, or mount the host's /sys/fs/cgroup and pass POD_UID",
        )
    limit = "no limit" if reading.limit is None else f"limit {gib(reading.limit)}"
    seen = f"{gib(reading.current)} used, {gib(reading.committed)} of it not reclaimable, {limit}"
    if reading.scope == "process":
        return Finding(
            part,
            "missing",
            seen,
            reading.rule,
            "the container's limit and OOM kills are unknown",
            "runAsUser: the same as vLLM's container, or mount the host's /sys/fs/cgroup and pass POD_UID",
        )
    return Finding(part, "ok", f"the {reading.scope}: {seen}", reading.rule)


def _shm(part: str, reading: HostReading) -> list[Finding]:
    if reading.dev_shm_limit is None:
        return []
    seen = f"{gib(reading.dev_shm_used)} of {gib(reading.dev_shm_limit)} used in /dev/shm"
    if reading.dev_shm_limit > SMALL_SHM_BYTES:
        return [Finding(part, "ok", seen)]
    change = "an emptyDir with medium: Memory at /dev/shm"
    return [Finding(part, "warning", seen, "", "vLLM's workers and NCCL may fail to start on it", change)]


def own_findings(socket: Path | None, pod_known: bool, pod_devices: frozenset[str] | None, note: str) -> list[Finding]:
    """Whether the kubelet says which GPUs are the pod's."""
    part = "kubelet"
    if pod_devices is not None:
        return [Finding(part, "ok", f"the pod was given {', '.join(sorted(pod_devices)) or 'no GPU'}", str(socket))]
    if socket is None:
        return [Finding(part, "note", "its pod-resources socket is not configured", "", "", "")]
    change = note if pod_known else "POD_NAME and POD_NAMESPACE by the downward API"
    return [
        Finding(part, "fault", f"{socket} does not tell: {note}", "", "which GPUs are the pod's is guessed", change)
    ]
