"""A process that is measured: installed alone into an environment of its own, started, weighed, scraped, ended."""

import http.client
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parent.parent
PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}
"""What Prometheus asks with."""


def cache() -> Path:
    """Where environments are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-headroom-bench"


def environment(name: str, *requirements: str) -> Path:
    """The `bin` of an environment that holds the newest of `requirements` and what they need, and nothing else."""
    place = cache() / name
    if not (place / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
    install(place / "bin", "--upgrade", *requirements)
    return place / "bin"


def install(bin_dir: Path, *what: str) -> None:
    """Pip's install; raises `CalledProcessError` with what it said."""
    command = [str(bin_dir / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True, timeout=600)


def ours() -> Path:
    """The `bin` of an environment with this project as it is now, as `pip install .` installs it."""
    bin_dir = environment("ours", str(ROOT))
    # The version stays the same from commit to commit, so pip would keep what it has.
    install(bin_dir, "--force-reinstall", "--no-deps", str(ROOT))
    return bin_dir


def cpu_seconds(pid: int) -> float:
    """User and system time so far, of the process and of the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def running_cpu_seconds(pid: int) -> float:
    """The time on a core of all threads there are now, to the nanosecond."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def memory_mib(pid: int, kind: str = "VmRSS") -> float:
    """`VmRSS` is the memory now, `VmHWM` the most there ever was."""
    found = re.search(rf"{kind}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


class Scraper:
    """Asks for one page over one kept connection, as Prometheus does."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        parts = urlsplit(url)
        self._path = parts.path or "/"
        self._headers = PROMETHEUS if headers is None else headers
        self._connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=30)

    def __call__(self) -> bytes:
        """The body; raises what goes wrong."""
        try:
            response = self._asked()
        except (ConnectionError, http.client.RemoteDisconnected):  # it was idle for long, and let go of
            self._connection.close()
            response = self._asked()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"{self._path}: {response.status}")
        return body

    def _asked(self) -> http.client.HTTPResponse:
        self._connection.request("GET", self._path, headers=self._headers)
        return self._connection.getresponse()

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of many exchanges."""

    milliseconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Half of them took at most this long."""
        return statistics.median(self.milliseconds)

    @property
    def p99(self) -> float:
        """All but one in a hundred took at most this long."""
        return sorted(self.milliseconds)[int(len(self.milliseconds) * 0.99)]


def timed(scraper: Scraper, count: int, pause_seconds: float) -> Times:
    """`count` scrapes, `pause_seconds` apart."""
    times = []
    for _ in range(count):
        time.sleep(pause_seconds)
        begun = time.perf_counter()
        scraper()
        times.append((time.perf_counter() - begun) * 1000)
    return Times(tuple(times))


def write_between(begin: str, end: str, text: str, path: Path = ROOT / "README.md") -> None:
    """Replace what stands between two marks of a file."""
    before, found, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} has no {begin} … {end}")
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def busy() -> str:
    """A warning where other work on this machine makes times worthless, else nothing."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return "" if load < 0.3 * cores else f"the machine is busy (load {load:.1f} on {cores} cores): times are too long"


def end(process: "subprocess.Popen[str]", seconds: float = 10.0) -> tuple[int | None, float]:
    """Send SIGTERM; the exit code and the seconds it took, or `None` where it had to be killed."""
    begun = time.monotonic()
    process.terminate()
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None, seconds
    return code, time.monotonic() - begun


def start(command: Sequence[str | Path], **environment: str) -> "subprocess.Popen[str]":
    """The process, its two outputs joined in one pipe."""
    return subprocess.Popen(
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "TERM": "xterm-256color", **environment},
    )
