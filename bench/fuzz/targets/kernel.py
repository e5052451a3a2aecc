"""The kernel's files below /proc and /sys/fs/cgroup, as they might be and as they cannot be.

An input is a list of files: a line `== NAME`, then the content up to the next. Names that are not in `FILES` are
passed over.
"""

import tempfile
from pathlib import Path

from bench.fuzz.target import Target
from exporter.errors import SourceError
from exporter.sources.device import Identity
from exporter.sources.gpu_owner import Evidence, choose
from exporter.sources.host import HostSource
from exporter.sources.server_process import ServerProcess

GROUP = "kubepods-pod1234.slice/cri-1.scope"
FILES = {
    "meminfo": "proc/meminfo",
    "vmstat": "proc/vmstat",
    "psi": "proc/pressure/memory",
    "stat": "proc/7/stat",
    "cmdline": "proc/7/cmdline",
    "group": "proc/7/cgroup",
    "status": "proc/7/status",
    "mounts": "proc/7/mountinfo",
    "environ": "proc/7/environ",
    "stat2": "proc/8/stat",
    "cmdline2": "proc/8/cmdline",
    "self": "proc/self/cgroup",
    "selfmounts": "proc/self/mountinfo",
    "current": f"cgroup/{GROUP}/memory.current",
    "max": f"cgroup/{GROUP}/memory.max",
    "swap": f"cgroup/{GROUP}/memory.swap.current",
    "memstat": f"cgroup/{GROUP}/memory.stat",
    "events": f"cgroup/{GROUP}/memory.events",
    "pressure": f"cgroup/{GROUP}/memory.pressure",
    "podcurrent": "cgroup/kubepods-pod1234.slice/memory.current",
    "podmax": "cgroup/kubepods-pod1234.slice/memory.max",
    "podevents": "cgroup/kubepods-pod1234.slice/memory.events",
    "usage1": f"cgroup/memory/{GROUP}/memory.usage_in_bytes",
    "limit1": f"cgroup/memory/{GROUP}/memory.limit_in_bytes",
    "memstat1": f"cgroup/memory/{GROUP}/memory.stat",
    "oom1": f"cgroup/memory/{GROUP}/memory.oom_control",
    "failcnt1": f"cgroup/memory/{GROUP}/memory.failcnt",
}
GPUS = tuple(Identity(index, f"GPU-{index}{index}") for index in range(3))


def check(data: bytes) -> None:
    """Host memory is read, twice, whatever the files say; so are the server's processes and its GPUs."""
    with tempfile.TemporaryDirectory(prefix="fuzz-kernel-") as directory:
        root = Path(directory)
        lay(root, data)
        server = ServerProcess(root / "proc", ports=frozenset({8000}))
        source = HostSource(server, proc=root / "proc", cgroup=root / "cgroup", dev_shm=root, pod_uid="1234")
        for now in (0.0, 1.0):
            reading = source.read(now)
            for size in (reading.current, reading.limit, reading.anon, reading.committed, reading.machine_total):
                assert size is None or size >= 0
        try:
            environment = server.environment()
        except (ProcessLookupError, FileNotFoundError):
            return
        choose(GPUS, ("auto",), Evidence(environment=environment))


def lay(root: Path, data: bytes) -> None:
    """Write the files of an input."""
    for directory in ("proc", "cgroup"):
        (root / directory).mkdir()
    for part in (b"\n" + data).split(b"\n== ")[1:]:
        name, _, content = part.partition(b"\n")
        place = FILES.get(name.decode(errors="replace"))
        if place is not None:
            path = root / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def files(**content: str) -> bytes:
    """An input of these files."""
    return "".join(f"== {name}\n{text}\n" for name, text in content.items()).encode()


PSI = "some avg10=12.50 avg60=3.00 avg300=1.00 total=25\nfull avg10=4.00 avg60=1.00 avg300=0.00 total=10"
SERVER = {
    "meminfo": "MemTotal: 1024 kB\nMemFree: 1 kB\nMemAvailable: 512 kB",
    "vmstat": "pgfault 12\noom_kill 3\nnuma_hit 3",
    "stat": f"7 (python3) S 1 {' '.join(['0'] * 17)} 100 0 0",
    "cmdline": "python3\0/usr/bin/vllm\0serve\0model\0--port\08000\0",
}


def seeds() -> list[bytes]:
    """A server in a group of version 2, of version 1, by its processes alone, and none."""
    version2 = {"group": f"0::/{GROUP}", "current": "900", "max": "1000", "swap": "0", "pressure": PSI}
    stat = "anon 500\nfile 300\nshmem 100\ninactive_file 50\nslab_reclaimable 10"
    above = {"podcurrent": "950", "podmax": "960", "podevents": "oom 1\noom_kill 1"}
    version1 = {"group": f"9:memory:/{GROUP}", "usage1": "900", "limit1": "9223372036854771712", "failcnt1": "7"}
    old = {"memstat1": "total_cache 300\ntotal_rss 500\ntotal_shmem 1", "oom1": "under_oom 0\noom_kill 2"}
    alone = {"status": "Name:\tpython3\nVmRSS:\t100 kB\nRssAnon:\t60 kB\nVmSwap:\t0 kB", "psi": PSI}
    gpus = {"environ": "CUDA_VISIBLE_DEVICES=0,1\0NVIDIA_VISIBLE_DEVICES=GPU-00,GPU-11\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0"}
    mounts = "36 35 0:3 / /dev/shm rw - tmpfs shm rw"
    child = {"stat2": f"8 (VLLM::W) S 7 {' '.join(['0'] * 17)} 110 0 0", "cmdline2": "VLLM::Worker_TP0\0"}
    return [
        files(**SERVER, **version2, memstat=stat, events="max 2\noom 1\noom_kill 1", **above, **gpus),
        files(**SERVER, **version1, **old, mounts=mounts, selfmounts=mounts),
        files(**SERVER, **alone, **child, **gpus),
        files(self="0::/", meminfo=SERVER["meminfo"], current="5"),
    ]


TARGET = Target(
    name="kernel",
    check=check,
    seeds=seeds,
    tokens=(
        *(f"\n== {name}\n".encode() for name in FILES),
        b"\0",
        b"max",
        b"-1",
        b"9" * 5000,
        "²".encode(),
        b"nan",
        b":",
    ),
    allowed=(SourceError,),
    longest=8192,
)
