"""A real vLLM server as a process: started on a free port, waited for, stopped, killed, suspended."""

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import httpx

START_SECONDS = 600.0
"""Twenty on an idle machine; four that start at once on two busy cores take minutes."""
STOP_SECONDS = 60.0
USUAL = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # Left to itself every server binds its threads to the same one or two cores.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
ENGINE_TITLE = "EngineCore"
EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""The worker inside the engine's process: one of its own polls for the next step without rest, a whole core of it."""


def vllm_environment() -> Path:
    """The virtual environment that holds vLLM; `scripts/test-vllm` names it."""
    place = os.environ.get("VLLM_ENV", "")
    program = Path(place) / "bin" / "vllm"
    if not place or not program.exists():
        raise FileNotFoundError(f"VLLM_ENV={place!r} holds no bin/vllm: run scripts/test-vllm")
    return Path(place)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class VllmServer:
    """`vllm serve MODEL FLAGS…` on loopback; a context manager that starts it and waits until it is healthy.

    Its output goes to `log`. `key` is sent with every request of `client`; `certificate` is the CA that signs the
    server's certificate when the flags make it speak TLS; `root` stands between host and path in `url`.
    """

    def __init__(
        self,
        model: Path,
        log: Path,
        *flags: str,
        environment: Mapping[str, str] | None = None,
        port: int | None = None,
        root: str = "",
        key: str | None = None,
        certificate: Path | None = None,
    ) -> None:
        self.model = model
        self.log = log
        self.flags = flags
        self.port = port or free_port()
        self.key = key
        self.certificate = certificate
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}{root}"
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, seconds: float = START_SECONDS) -> None:
        """Start it and wait until it answers; raises with the end of its log when it does not."""
        place = vllm_environment()
        command = [str(place / "bin" / "vllm"), "serve", str(self.model), "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--load-format", "dummy", "--enforce-eager"]
        command += ["--distributed-executor-backend", EXECUTOR, *self.flags]
        path = f"{place / 'bin'}:{os.environ.get('PATH', '')}"
        environment = {**os.environ, "PATH": path, **USUAL, **self._environment}
        for ours in ("PYTHONPATH", "VIRTUAL_ENV"):
            if ours not in self._environment:
                environment.pop(ours, None)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        until = time.monotonic() + seconds
        with self.client() as client:
            while time.monotonic() < until:
                if self._process.poll() is not None:
                    raise RuntimeError(f"vLLM ended with {self._process.returncode}:\n{self.tail()}")
                try:
                    if client.get("/health").status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
                time.sleep(0.5)
        self.kill()
        raise RuntimeError(f"vLLM was not healthy within {seconds:.0f} s:\n{self.tail()}")

    def client(self, timeout: float = 30.0) -> httpx.Client:
        """A client of this server's API; the caller closes it."""
        return httpx.Client(base_url=self.url, timeout=timeout, verify=self.trust(), headers=self.headers)

    @property
    def headers(self) -> dict[str, str]:
        """What every request must carry."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def trust(self) -> ssl.SSLContext | bool:
        """What a client verifies the server's certificate with."""
        return ssl.create_default_context(cafile=str(self.certificate)) if self.certificate else True

    def page(self, timeout: float = 30.0) -> str:
        """Its metrics page now."""
        with self.client(timeout) as client:
            return client.get("/metrics").raise_for_status().text

    def tail(self, lines: int = 40) -> str:
        """The end of its output."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    @property
    def running(self) -> bool:
        """Whether its main process lives."""
        return self._process is not None and self._process.poll() is None

    def processes(self) -> dict[int, str]:
        """Every living process of the server: number and title; the main one and all that descend from it."""
        if self._process is None:
            return {}
        parents: dict[int, int] = {}
        titles: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
                title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)], titles[int(entry.name)] = int(parent), title
        found = {self._process.pid}
        while more := {child for child, parent in parents.items() if parent in found} - found:
            found |= more
        return {pid: titles[pid] for pid in sorted(found) if pid in titles}

    def engines(self) -> list[int]:
        """The processes that run the engines themselves."""
        return [pid for pid, title in self.processes().items() if ENGINE_TITLE in title]

    def stop(self) -> None:
        """End it as an orchestrator would: SIGTERM, then SIGKILL for what is left; safe to call again."""
        if self._process is None:
            return
        family = self.processes()
        self.resume()
        self._send(signal.SIGTERM, [self._process.pid])
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._send(signal.SIGKILL, self._still(family))
        self._process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL to every process of the server at once, as the kernel does to a container out of memory."""
        if self._process is not None:
            self._send(signal.SIGKILL, self.processes())
            self._process.wait(STOP_SECONDS)

    def suspend(self, *, engines_only: bool = False) -> None:
        """SIGSTOP: nothing of it moves any more, or only its engines do not and its pages still come."""
        self._send(signal.SIGSTOP, self.engines() if engines_only else self.processes())

    def resume(self) -> None:
        """SIGCONT to all of it."""
        self._send(signal.SIGCONT, self.processes())

    def _still(self, family: Mapping[int, str]) -> list[int]:
        """Those of `family` that live and are who they were: a number may have been given to another."""
        still = []
        for pid, title in family.items():
            try:
                now = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if now and now == title:
                still.append(pid)
        return still

    def _send(self, number: signal.Signals, pids: Mapping[int, str] | list[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
