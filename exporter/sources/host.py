"""Host memory of the vLLM server: its container, else its pod, else its processes, else only the machine.

The exporter's own control group is never taken for the server's. A sidecar sees the server's group through
`/proc/PID/root` (a shared PID namespace and the same user), through a mounted host hierarchy, or not at all.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.reading import HostReading
from exporter.sources.cgroup import GroupMemory, group_of, keyed, read_group, read_pressure, text_of, value_of
from exporter.sources.oom_kills import OomKills
from exporter.sources.server_process import Process, Server, ServerProcess

_DEPTH = 6
"""kubepods.slice/kubepods-burstable.slice/…-pod<uid>.slice/cri-containerd-<id>.scope, and two to spare."""
_MAX_LOOKS = 5
"""A group that is not found is looked for after 1, 2, 4, … 32 s: going through a node's hierarchy costs far more than
a tick."""


@dataclass(frozen=True, slots=True)
class Place:
    """A control group that counts the server's memory, whose it is, and how it was found."""

    path: Path
    scope: str
    rule: str
    root: Path


class HostSource:
    """Host memory, once per `read`; everything it reads lies below the roots passed in.

    `pod_uid` is the pod's UID from the downward API: with the host's hierarchy at `cgroup` it finds the pod's group
    when no process of the server can be seen.
    """

    def __init__(
        self,
        server: ServerProcess | None = None,
        *,
        proc: Path = Path("/proc"),
        cgroup: Path = Path("/sys/fs/cgroup"),
        dev_shm: Path = Path("/dev/shm"),  # noqa: S108 – its size is asked, nothing is written
        pod_uid: str | None = None,
    ) -> None:
        self._server = server or ServerProcess(proc)
        self._proc = proc
        self._cgroup = cgroup
        self._dev_shm = dev_shm
        self._pod_uid = pod_uid
        self._place: Place | None = None
        self._last_place: Place | None = None
        """Where this server's group was last: there it may be again at any reading."""
        self._looked_for: int | None = None
        self._looks = 0
        self._look_at = float("-inf")
        self._counter: Path | None = None
        self._main: Process | None = None
        self._starts = 0
        self._kills = OomKills(proc)

    def read(self, now: float) -> HostReading:
        """Host memory at `now`. What cannot be had is absent, and `missing` says why."""
        server = self._server.find()
        place = self._located(server, now)
        group = read_group(place.path) if place else None
        if server is not None and server.main != self._main:
            self._starts += 1
            self._main = server.main
        kills, inferred = self._kills.observe(self._counter, server.main if server else None)
        machine = self.machine()
        missing: dict[str, str] = {}
        used, limit = self._shm(server, missing)
        common = HostReading(
            time=now,
            scope="machine",
            rule="neither a process nor a control group of the server can be seen: set shareProcessNamespace: true",
            oom_kills=kills,
            oom_kills_inferred=inferred,
            server_starts=self._starts or None,
            dev_shm_used=used,
            dev_shm_limit=limit,
            machine_total=machine[0] if machine else None,
            machine_available=machine[1] if machine else None,
            missing=missing,
        )
        if place is not None and group is not None:
            return _of_group(common, place, self._tightest(place, group))
        if server is not None:
            missing["limit"] = "no_cgroup"
            return _of_processes(common, self._proc, server)
        missing["current"] = "not_visible"
        return common

    def machine(self) -> tuple[int, int] | None:
        """Total and available bytes of the machine: what a GPU without memory of its own allocates from."""
        total, available = (value_of(self._proc / "meminfo", key) for key in ("MemTotal", "MemAvailable"))
        return None if total is None or available is None else (total * 1024, available * 1024)

    def _located(self, server: Server | None, now: float) -> Place | None:
        """The server's group, kept while it is there; where none is found, it is looked for ever less often."""
        pid = server.main.pid if server else None
        lost = self._place is not None and not self._place.path.exists()
        if pid != self._looked_for:
            self._last_place = None
        if pid != self._looked_for or lost:
            self._looked_for, self._look_at, self._looks = pid, now, 0
        if (self._place is None or self._looks == 0) and now >= self._look_at:
            self._look_at = now + 2.0**self._looks
            self._looks = min(self._looks + 1, _MAX_LOOKS)
            self._place = next(self._places(pid), None)
            self._counter = _counter(self._place)
            self._last_place = self._place or self._last_place
        elif self._place is None and self._last_place is not None and read_group(self._last_place.path) is not None:
            self._place = self._last_place
            self._counter = _counter(self._place)
        return self._place

    def _places(self, pid: int | None) -> Iterator[Place]:
        """Groups that count the server's memory, the nearest first."""
        if pid is not None and (found := group_of(self._proc, pid)) is not None:
            controller, name = found
            root = self._cgroup / controller
            if not name.startswith("/.."):
                yield from _readable(root / name.lstrip("/"), root, "container", f"control group {name} of the server")
                if found == group_of(self._proc, "self"):
                    yield from _readable(root, root, "container", "the server runs in this container")
            inside = self._proc / str(pid) / "root" / "sys/fs/cgroup" / controller
            yield from _readable(inside, inside, "container", f"the container's own view, /proc/{pid}/root")
            leaf = name.rstrip("/").rpartition("/")[2]
            for path in _search(root, lambda directory: bool(leaf) and directory == leaf):
                yield from _readable(path, root, "container", f"control group {leaf} in the host's hierarchy")
        if self._pod_uid:
            spellings = (self._pod_uid, self._pod_uid.replace("-", "_"))
            for root in (self._cgroup, self._cgroup / "memory"):
                for path in _search(root, lambda directory: any(f"pod{uid}" in directory for uid in spellings)):
                    yield from _readable(path, root, "pod", f"the pod's control group {path.name}")

    def _tightest(self, place: Place, group: GroupMemory) -> tuple[str, GroupMemory]:
        """The group or that one of its ancestors whose limit is nearest: the kernel kills at whichever comes first."""
        best = (place.scope, group)
        for path in _ancestors(place):
            above = read_group(path)
            if above is None or above.headroom is None:
                continue
            if best[1].headroom is None or above.headroom < best[1].headroom:
                best = ("pod" if "pod" in path.name else place.scope, above)
        return best

    def _shm(self, server: Server | None, missing: dict[str, str]) -> tuple[int | None, int | None]:
        """Bytes used and bytes allowed of the /dev/shm that the server sees."""
        if server is None:
            missing["dev_shm"] = "not_visible"
            return None, None
        path = self._proc / str(server.main.pid) / "root" / "dev/shm"
        if not os.access(path, os.R_OK):
            ours, theirs = (_shm_device(self._proc, pid) for pid in ("self", server.main.pid))
            if ours is None or ours != theirs:
                missing["dev_shm"] = "no_permission"
                return None, None
            path = self._dev_shm
        try:
            stat = os.statvfs(path)
        except OSError:
            missing["dev_shm"] = "not_supported"
            return None, None
        return (stat.f_blocks - stat.f_bfree) * stat.f_frsize, stat.f_blocks * stat.f_frsize


def _readable(path: Path, root: Path, scope: str, rule: str) -> Iterator[Place]:
    """The place, if the server's memory is counted there; the root of a whole hierarchy counts the machine's."""
    # os.path.exists is also of a name that no file can have, which a process's own text may give.
    if not os.path.exists(path / "cgroup.sane_behavior") and read_group(path) is not None:  # noqa: PTH110
        yield Place(path, scope, rule, root)


def _ancestors(place: Place) -> Iterator[Path]:
    """The groups above the place, the nearest first, short of the hierarchy's root."""
    path = place.path
    while path != place.root and path.parent != place.root and place.root in path.parents:
        path = path.parent
        yield path


def _counter(place: Place | None) -> Path | None:
    """The group whose kills are counted: the pod's, which survives the container, where it can be seen."""
    if place is None:
        return None
    return next((path for path in _ancestors(place) if "pod" in path.name and read_group(path)), place.path)


def _search(root: Path, wanted: Callable[[str], bool]) -> Iterator[Path]:
    """Directories below `root` whose name is wanted, not deeper than a container's group can be."""
    for directory, children, _ in os.walk(root):
        here = Path(directory)
        yield from (here / child for child in sorted(children) if wanted(child))
        if len(here.relative_to(root).parts) >= _DEPTH - 1:
            children.clear()


def _of_group(common: HostReading, place: Place, found: tuple[str, GroupMemory]) -> HostReading:
    scope, group = found
    return replace(
        common,
        scope=scope,
        rule=place.rule if scope == place.scope else f"the pod above the {place.rule}, whose limit is nearer",
        current=group.current,
        limit=group.limit,
        swap=group.swap,
        swap_limit=group.swap_limit,
        anon=group.anon,
        shmem=group.shmem,
        file=group.file,
        working_set=group.working_set,
        committed=group.committed,
        ooms=group.ooms,
        limit_hits=group.limit_hits,
        pressure=group.pressure,
    )


def _of_processes(common: HostReading, proc: Path, server: Server) -> HostReading:
    """Resident memory of the server's processes; a page that several share is counted in each."""
    sums: dict[str, int] = {}
    for pid in server.pids:
        for key, kib in keyed(proc / str(pid) / "status").items():
            if key in ("VmRSS", "RssAnon", "RssFile", "RssShmem", "VmSwap"):
                sums[key] = sums.get(key, 0) + kib * 1024
    return replace(
        common,
        scope="process",
        rule=f"resident memory of the server's {len(server.pids)} processes; its control group cannot be seen",
        current=sums.get("VmRSS"),
        swap=sums.get("VmSwap"),
        anon=sums.get("RssAnon"),
        shmem=sums.get("RssShmem"),
        file=sums.get("RssFile"),
        committed=sums.get("RssAnon"),
        pressure=read_pressure(proc / "pressure/memory"),
    )


def _shm_device(proc: Path, pid: int | str) -> str | None:
    """Device number of what is mounted last at /dev/shm in the process's mount namespace."""
    lines = text_of(proc / str(pid) / "mountinfo").splitlines()
    mounts = [fields for line in lines if len(fields := line.split()) > 4 and fields[4] == "/dev/shm"]  # noqa: S108
    return mounts[-1][2] if mounts else None
