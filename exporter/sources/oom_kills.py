"""How often the kernel killed the server for memory, over restarts of its container.

A container's control group, and its counter with it, goes with the container; the exporter stays. The pod's group
counts what happens below it and is followed where it can be seen. Where a group is gone before its last count could
be read, the machine's own counter decides: the server ended in the very interval in which a kill was counted.
"""

from pathlib import Path

from exporter.sources.cgroup import keyed, value_of
from exporter.sources.server_process import Process


class OomKills:
    """Counts kills; `proc` is where the machine's counter (`vmstat`) is."""

    def __init__(self, proc: Path) -> None:
        self._vmstat = proc / "vmstat"
        self._retired = 0
        self._inferred = 0
        self._group: tuple[Path, int] | None = None
        self._count: int | None = None
        self._server: Process | None = None
        self._machine: int | None = None
        self._watching = False

    def observe(self, group: Path | None, server: Process | None) -> tuple[int | None, int | None]:
        """Kills so far, and how many of them were inferred; both `None` until there was a server to be killed.

        `group` is the control group whose counter speaks for the server now, `server` its main process.
        """
        machine = value_of(self._vmstat, "oom_kill")
        ended = self._server is not None and server != self._server
        if not self._recount() and ended and _rose(self._machine, machine):
            self._inferred += 1
        if group is not None and (identity := _identity(group)) != self._group:
            self._retired += self._count or 0
            self._group, self._count = identity, kills_of(group)
        self._watching |= self._count is not None or (server is not None and machine is not None)
        self._server, self._machine = server, machine
        if not self._watching:
            return None, None
        return self._retired + (self._count or 0) + self._inferred, self._inferred

    def _recount(self) -> bool:
        """Read the followed group again; false where it is gone, and then its last count stands."""
        if self._group is None or _identity(self._group[0]) != self._group:
            return False
        if (count := kills_of(self._group[0])) is None:
            return False
        self._count = count
        return True


def kills_of(group: Path) -> int | None:
    """The group's own counter: `memory.events` of version 2, `memory.oom_control` of version 1."""
    for name in ("memory.events", "memory.oom_control"):
        if (count := keyed(group / name).get("oom_kill")) is not None:
            return count
    return None


def _identity(group: Path) -> tuple[Path, int] | None:
    """A group by its path and inode: a new container may get an old one's path."""
    try:
        return group, group.stat().st_ino
    except OSError:
        return None


def _rose(before: int | None, now: int | None) -> bool:
    return before is not None and now is not None and now > before
