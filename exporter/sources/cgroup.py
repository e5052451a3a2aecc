"""The memory of one control group, version 2 or 1, and where a process's group is found.

A file that is missing costs its field. "No limit" is `None`: `max` in version 2, and in version 1 a number so large
that no machine has it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.errors import starved
from exporter.reading import Pressure

_LIMIT_BYTES = 2**20
_MAX_PARTS = 256
"""The kernel gives out some files a page at a time."""
_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")
UNLIMITED_V1 = 2**62
"""Version 1 writes 2^63 less a page for "no limit"; nothing above 2^62 is a limit anyone set."""


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """Memory of a group and everything below it, in bytes."""

    current: int
    limit: int | None = None
    swap: int | None = None
    swap_limit: int | None = None
    anon: int | None = None
    shmem: int | None = None
    file: int | None = None
    working_set: int | None = None
    committed: int | None = None
    oom_kills: int | None = None
    ooms: int | None = None
    limit_hits: int | None = None
    pressure: Pressure | None = None

    @property
    def headroom(self) -> int | None:
        """Limit less what cannot be reclaimed; `None` without a limit."""
        used = self.committed if self.committed is not None else self.current
        return None if self.limit is None else self.limit - used


def read_group(path: Path) -> GroupMemory | None:
    """The memory of the group at `path`, or `None` where that is no memory group that can be read."""
    if (current := _number(path / "memory.current")) is not None:
        return _version2(path, current)
    if (current := _number(path / "memory.usage_in_bytes")) is not None:
        return _version1(path, current)
    return None


def _version2(path: Path, current: int) -> GroupMemory:
    stat, events = keyed(path / "memory.stat"), keyed(path / "memory.events")
    # Version 2 counts shared memory as file; only the rest of it is cache that can be given back.
    cache = stat["file"] - stat.get("shmem", 0) if "file" in stat else None
    return GroupMemory(
        current=current,
        limit=_number(path / "memory.max"),
        swap=_number(path / "memory.swap.current"),
        swap_limit=_number(path / "memory.swap.max"),
        anon=stat.get("anon"),
        shmem=stat.get("shmem"),
        file=stat.get("file"),
        working_set=max(0, current - stat["inactive_file"]) if "inactive_file" in stat else None,
        committed=None if cache is None else max(0, current - cache - stat.get("slab_reclaimable", 0)),
        oom_kills=events.get("oom_kill"),
        ooms=events.get("oom"),
        limit_hits=events.get("max"),
        pressure=read_pressure(path / "memory.pressure"),
    )


def _version1(path: Path, current: int) -> GroupMemory:
    stat = keyed(path / "memory.stat")
    cache, shmem = stat.get("total_cache"), stat.get("total_shmem", 0)
    both = _number(path / "memory.memsw.usage_in_bytes")
    return GroupMemory(
        current=current,
        limit=_limit(_number(path / "memory.limit_in_bytes")),
        swap=stat.get("total_swap", None if both is None else max(0, both - current)),
        anon=stat.get("total_rss"),
        shmem=stat.get("total_shmem"),
        file=cache,
        working_set=max(0, current - stat["total_inactive_file"]) if "total_inactive_file" in stat else None,
        committed=None if cache is None else max(0, current - (cache - shmem)),
        oom_kills=keyed(path / "memory.oom_control").get("oom_kill"),
        limit_hits=_number(path / "memory.failcnt"),
    )


def read_pressure(path: Path) -> Pressure | None:
    """A PSI file, as ratios; `None` where the kernel does not keep it."""
    found: dict[str, float] = {}
    for line in text_of(path).splitlines():
        kind, _, rest = line.partition(" ")
        for pair in rest.split():
            key, _, value = pair.partition("=")
            if _DECIMAL.fullmatch(value):
                found[f"{kind}_{key}"] = float(value)
    if "some_avg10" not in found:
        return None
    return Pressure(
        some_10s=found["some_avg10"] / 100,
        some_60s=_share(found, "some_avg60"),
        full_10s=_share(found, "full_avg10"),
        full_60s=_share(found, "full_avg60"),
        some_stalled_seconds=found["some_total"] / 1e6 if "some_total" in found else None,
        full_stalled_seconds=found["full_total"] / 1e6 if "full_total" in found else None,
    )


def text_of(path: Path) -> str:
    """A small kernel file, read without a buffer; empty where it cannot be read.

    Raises `OSError` where this process cannot read any file: what it saw before has not vanished then.
    """
    parts: list[bytes] = []
    try:
        with path.open("rb", buffering=0) as file:
            while (part := file.read(_LIMIT_BYTES - sum(map(len, parts)))) and len(parts) < _MAX_PARTS:
                parts.append(part)
    except (OSError, ValueError) as error:  # also for a name that no file can have
        if starved(error):
            raise
        return ""
    return b"".join(parts).decode(errors="replace")


def whole(text: str) -> int | None:
    """A number as the kernel writes it: ASCII digits, as many as 64 bits have; `None` for anything else."""
    return int(text) if len(text) <= 20 and text.isascii() and text.isdigit() else None


def keyed(path: Path) -> dict[str, int]:
    """A file of `key number` lines; empty where it cannot be read."""
    pairs = (line.split() for line in text_of(path).splitlines())
    told = ((pair[0].rstrip(":"), whole(pair[1])) for pair in pairs if len(pair) >= 2)
    return {key: value for key, value in told if value is not None}


def value_of(path: Path, key: str) -> int | None:
    """One number of a long `key number` file, without reading the rest of its lines one by one."""
    text = "\n" + text_of(path)
    for separator in (" ", ":"):
        start = text.find(f"\n{key}{separator}")
        if start >= 0:
            words = text[start + len(key) + 2 : start + len(key) + 60].split(maxsplit=1)
            return whole(words[0]) if words else None
    return None


def group_of(proc: Path, pid: int | str) -> tuple[str, str] | None:
    """(`memory` or `` for version 2, path) of the group in which process `pid` has its memory counted."""
    lines = text_of(proc / str(pid) / "cgroup").splitlines()
    entries = {names: path for _, names, path in (line.split(":", 2) for line in lines if line.count(":") >= 2)}
    for names, path in entries.items():
        if "memory" in names.split(","):
            return "memory", path
    return ("", entries[""]) if "" in entries else None


def _share(found: Mapping[str, float], key: str) -> float | None:
    return found[key] / 100 if key in found else None


def _limit(value: int | None) -> int | None:
    return None if value is None or value >= UNLIMITED_V1 else value


def _number(path: Path) -> int | None:
    """The number in a file; `None` where there is none, or it says `max`."""
    return whole(text_of(path).strip())
