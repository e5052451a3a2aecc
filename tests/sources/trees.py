"""/proc and cgroup trees on disk, as the kernel lays them out."""

from pathlib import Path

GIB = 2**30
MIB = 2**20
SERVE = "/usr/bin/python3\0/usr/local/bin/vllm\0serve\0model\0"


class Machine:
    """A /proc and a cgroup hierarchy below a directory."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.cgroup = root / "cgroup"
        self.cgroup.mkdir(parents=True)
        self.proc.mkdir()
        self.memory(64 * GIB, 40 * GIB)
        self.kills(0)

    def memory(self, total: int, available: int) -> None:
        text = f"MemTotal: {total // 1024} kB\nMemFree: 1 kB\nMemAvailable: {available // 1024} kB\n"
        (self.proc / "meminfo").write_text(text)

    def kills(self, count: int) -> None:
        """The machine's own counter of OOM kills."""
        (self.proc / "vmstat").write_text(f"pgfault 12\noom_kill {count}\nnuma_hit 3\n")

    def process(
        self, pid: int, command: str, *, parent: int = 1, started: int = 100, group: str = "0::/", name: str = "python3"
    ) -> Path:
        path = self.proc / str(pid)
        path.mkdir(exist_ok=True)
        rest = " ".join(["0"] * 17)
        (path / "stat").write_text(f"{pid} ({name}) S {parent} {rest} {started} 0 0\n")
        (path / "cmdline").write_text(command)
        (path / "cgroup").write_text(group + "\n")
        return path

    def resident(self, pid: int, *, anon: int, shmem: int = 0, file: int = 0) -> None:
        lines = {"VmRSS": anon + shmem + file, "RssAnon": anon, "RssShmem": shmem, "RssFile": file, "VmSwap": 0}
        text = "".join(f"{key}:\t{size // 1024} kB\n" for key, size in lines.items())
        (self.proc / str(pid) / "status").write_text("Name:\tpython3\n" + text)

    def end(self, pid: int) -> None:
        for file in sorted((self.proc / str(pid)).rglob("*"), reverse=True):
            file.unlink() if file.is_file() or file.is_symlink() else file.rmdir()
        (self.proc / str(pid)).rmdir()


def group_v2(
    path: Path,
    current: int,
    *,
    limit: int | None = None,
    anon: int = 0,
    shmem: int = 0,
    cache: int = 0,
    inactive: int = 0,
    kills: int = 0,
    hits: int = 0,
) -> Path:
    """A memory group of version 2; `cache` is file cache without shared memory."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "memory.current").write_text(f"{current}\n")
    (path / "memory.max").write_text(f"{'max' if limit is None else limit}\n")
    (path / "memory.swap.current").write_text("0\n")
    (path / "memory.swap.max").write_text("max\n")
    stat = {"anon": anon, "file": cache + shmem, "shmem": shmem, "inactive_file": inactive, "slab_reclaimable": 0}
    (path / "memory.stat").write_text("".join(f"{key} {value}\n" for key, value in stat.items()))
    (path / "memory.events").write_text(f"low 0\nhigh 0\nmax {hits}\noom {kills}\noom_kill {kills}\n")
    (path / "memory.pressure").write_text(
        "some avg10=12.50 avg60=3.00 avg300=1.00 total=2500000\nfull avg10=4.00 avg60=1.00 avg300=0.00 total=1000000\n"
    )
    return path


def group_v1(path: Path, current: int, *, limit: int = 9223372036854771712, rss: int = 0, shmem: int = 0) -> Path:
    """A memory group of version 1; by default without a limit, as version 1 writes it."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "memory.usage_in_bytes").write_text(f"{current}\n")
    (path / "memory.limit_in_bytes").write_text(f"{limit}\n")
    stat = {
        "cache": 0,
        "total_cache": 2 * GIB + shmem,
        "total_rss": rss,
        "total_shmem": shmem,
        "total_inactive_file": GIB,
    }
    (path / "memory.stat").write_text("".join(f"{key} {value}\n" for key, value in stat.items()))
    (path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    (path / "memory.failcnt").write_text("7\n")
    return path
