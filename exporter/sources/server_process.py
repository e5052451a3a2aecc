"""The vLLM server's processes, as /proc shows them.

They can be seen where the exporter shares the server's PID namespace (`shareProcessNamespace`, `hostPID`, or no
container at all). What is world-readable (command line, parent, resident memory) needs no right; the environment and
the root directory of a process need the server's user, and their absence is told apart from the server's.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.errors import starved
from exporter.sources.cgroup import whole
from exporter.sources.device import ProcessView

_COMMAND = re.compile(r"(^|[/\0])vllm\0serve\0|\0vllm\.entrypoints\.")
_TITLE = re.compile(r"^(VLLM::|ray::RayWorker)")
_PORT = re.compile(r"\0--port(?:=|\0)([0-9]{1,5})\0")


@dataclass(frozen=True, slots=True)
class Process:
    """One process: its parent, its command line with NUL between the arguments, and its start in clock ticks.

    It is the same process whoever its parent is now, and whatever it calls itself.
    """

    pid: int
    parent: int = field(compare=False)
    started: int
    command: str = field(compare=False)

    @property
    def port(self) -> int | None:
        """The port a server's command line asks for; vLLM's default is 8000; `None` for any other process."""
        if not _COMMAND.search(self.command):
            return None
        found = _PORT.search(self.command)
        return int(found[1]) if found else 8000


@dataclass(frozen=True, slots=True)
class Server:
    """The server's process tree: `pids` are all of it, `mains` its roots, `workers` those that may hold a GPU."""

    mains: tuple[Process, ...]
    pids: frozenset[int]

    @property
    def main(self) -> Process:
        """The process that stands for the server: the oldest root."""
        return min(self.mains, key=lambda process: process.started)


class ServerProcess:
    """Finds the server below `proc`, and looks again every `seconds` or once its main process is gone.

    `ports` are those of the vLLM URLs: where several servers can be seen, only theirs are taken.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        *,
        ports: frozenset[int] = frozenset(),
        seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.proc = proc
        self._ports = ports
        self._seconds = seconds
        self._clock = clock
        self._found: Server | None = None
        self._next_look = float("-inf")

    def find(self) -> Server | None:
        """The server, or `None` where no process of it can be seen."""
        now = self._clock()
        gone = self._found is not None and not _lives(self.proc, self._found.main)
        if gone or now >= self._next_look:
            self._found = pick(processes(self.proc), self._ports)
            self._next_look = now + self._seconds
        return self._found

    def view(self, _now: float = 0.0) -> ProcessView:
        """The PIDs by which GPU memory is attributed."""
        server = self.find()
        return ProcessView(server.pids if server else frozenset(), lambda pid: (self.proc / str(pid)).exists())

    def environment(self) -> Mapping[str, str]:
        """The server's environment at its start; raises `PermissionError`, or `ProcessLookupError` without a server."""
        server = self.find()
        if server is None:
            raise ProcessLookupError
        text = (self.proc / str(server.main.pid) / "environ").read_bytes().decode(errors="replace")
        return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def processes(proc: Path) -> list[Process]:
    """Every process that `proc` shows; one that ends meanwhile is left out.

    Raises `OSError` where this process cannot read any file: that shows nothing of others.
    """
    try:
        pids = [whole(entry.name) for entry in proc.iterdir()]
    except OSError as error:
        if starved(error):
            raise
        return []
    return [process for pid in sorted(pid for pid in pids if pid) if (process := _read(proc, pid)) is not None]


def pick(seen: list[Process], ports: frozenset[int] = frozenset()) -> Server | None:
    """The server among `seen`: the trees below the commands that serve vLLM, of `ports` where those exist."""
    mains = [process for process in seen if process.port is not None]
    asked = [process for process in mains if process.port in ports]
    titled = [process for process in seen if _TITLE.match(process.command)]
    roots = asked or mains or titled
    if not roots:
        return None
    tree = {process.pid for process in roots}
    if len(mains) == len(asked or mains):
        tree |= {process.pid for process in titled}
    grown = True
    while grown:
        below = {process.pid for process in seen if process.parent in tree} - tree
        tree |= below
        grown = bool(below)
    heads = {process.pid for process in roots}
    return Server(tuple(p for p in roots if p.parent not in heads) or tuple(roots), frozenset(tree))


def _read(proc: Path, pid: int) -> Process | None:
    stat = _stat(proc, pid)
    try:
        command = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    except OSError as error:
        if starved(error):
            raise
        return None
    return None if stat is None else Process(pid, *stat, command)


def _lives(proc: Path, process: Process) -> bool:
    """Whether it still runs; its command line, whose read can block, is not asked for."""
    stat = _stat(proc, process.pid)
    return stat is not None and stat[1] == process.started


def _stat(proc: Path, pid: int) -> tuple[int, int] | None:
    """Parent and start; `None` where there is no such process, or it has ended."""
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError as error:
        if starved(error):
            raise
        return None
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    parent, started = whole(fields[1]), whole(fields[19])
    return None if parent is None or started is None else (parent, started)
