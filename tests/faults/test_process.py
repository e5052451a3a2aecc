"""The whole daemon as a process that lacks descriptors, memory, a disk, and is told to stop at every moment."""

import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.sources.trees import GIB, SERVE, Machine, group_v2
from tests.support import pages
from tests.support.daemon import Page
from tests.support.expositions import exposition, series
from tests.support.process import COMMAND, ROOT, Process, daemon

PAGE = exposition("vllm-0.32-one-engine-full.prom")
GROUP = "kubepods.slice/kubepods-pod1.slice/cri-a.scope"
SOURCES = {"vllm", "model_config", "host"}


@dataclass
class Scene:
    """A daemon beside a server and a container, and one connection to its page that is always open."""

    daemon: Process
    server: pages.PageServer
    client: httpx.Client

    def page(self) -> Page:
        """Our page, over the connection that is open."""
        return Page(self.client.get("/metrics").text)

    def until_down(self, source: str, reason: str) -> Page:
        """Our page once the source is down for that reason."""
        end = time.monotonic() + 30
        while not (page := self.page()).values("source_down_reason", source=source, reason=reason):
            assert time.monotonic() < end, page.text
            time.sleep(0.1)
        return page


def up(page: Page) -> set[str]:
    """The sources that are up."""
    return {dict(labels)["source"] for (_, labels), value in page.values("source_up").items() if value == 1}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    (machine.process(100, SERVE, started=100, group=f"0::/{GROUP}") / "root").mkdir()
    group_v2(machine.cgroup / GROUP, 20 * GIB, limit=64 * GIB, anon=19 * GIB, kills=3)
    flags = {
        "--gpus": "none",
        "--poll-interval-seconds": "0.2",
        "--vllm-timeout-seconds": "3",
        "--proc-dir": str(machine.proc),
        "--cgroup-dir": str(machine.cgroup),
        "--model-config": str(ROOT / "exporter/demo/model"),
    }
    with pages.PageServer(pages.answer(PAGE)) as server:
        arguments = [part for pair in flags.items() for part in pair]
        with daemon("--vllm-url", server.url, *arguments) as process, httpx.Client(base_url=process.url) as client:
            scene = Scene(process, server, client)
            assert up(process.after(2)) == SOURCES
            yield scene


def recovered(scene: Scene, before: Page) -> None:
    """Everything is up again, alone, and no counter is lower than it was."""
    # The tick that is under way may have met the fault; of the two after it, one must not.
    page = scene.daemon.after(3)
    assert up(page) == SOURCES
    assert page.values("kv_used_ratio") == before.values("kv_used_ratio")
    for counter in ("host_oom_kills_total", "host_server_starts_total", "forecasts_total"):
        assert before.values(counter)
        for key, count in before.values(counter).items():
            assert page.values(counter)[key] >= count
    assert page.value("host_server_starts_total") == 1


def test_without_descriptors_the_sources_say_so(scene: Scene) -> None:
    """Nothing can be opened: vLLM's page and the container's files are down for that reason, the page is served."""
    before = scene.page()
    soft, _ = resource.prlimit(scene.daemon.pid, resource.RLIMIT_NOFILE)
    scene.daemon.limit(resource.RLIMIT_NOFILE, 3)
    scene.server.drop_connections()
    page = scene.until_down("vllm", "no_descriptors")
    assert page.state() == "unknown"
    page = scene.until_down("host", "no_descriptors")
    assert not page.values("host_memory_bytes")
    scene.daemon.limit(resource.RLIMIT_NOFILE, soft)
    recovered(scene, before)


def test_without_memory_the_source_that_needs_it_says_so(scene: Scene) -> None:
    """A page for which there is no memory takes vLLM down and no more than a reading; ticks and pages go on."""
    before = scene.page()
    status = Path(f"/proc/{scene.daemon.pid}/status").read_text()
    found = re.search(r"VmData:\s+(\d+)", status)
    assert found
    soft, _ = resource.prlimit(scene.daemon.pid, resource.RLIMIT_DATA)
    many = "".join(series("vllm:num_requests_running", 1, engine=str(n), model_name="m") for n in range(4000))
    scene.daemon.limit(resource.RLIMIT_DATA, int(found[1]) * 1024)
    scene.server.behaviour = pages.answer(PAGE + many)
    page = scene.until_down("vllm", "out_of_memory")
    assert set(page.values("state").values()) <= {0.0, 1.0}
    assert not page.values("kv_used_ratio")
    scene.daemon.limit(resource.RLIMIT_DATA, soft)
    scene.server.behaviour = pages.answer(PAGE)
    scene.daemon.until(lambda page: up(page) == SOURCES)
    recovered(scene, before)


def test_stopped_and_continued_it_goes_on(scene: Scene) -> None:
    """A process that stood still reads on within two ticks and has lost no counter."""
    before = scene.page()
    scene.daemon.send(signal.SIGSTOP)
    time.sleep(1)
    scene.daemon.send(signal.SIGCONT)
    recovered(scene, before)


def test_sighup_ends_nothing(scene: Scene) -> None:
    """Told to reload, also while a reading hangs, it ticks on."""
    before = scene.page()
    scene.daemon.send(signal.SIGHUP)
    scene.server.behaviour = pages.silence()
    scene.until_down("vllm", "timeout")
    scene.daemon.send(signal.SIGHUP)
    scene.server.behaviour = pages.answer(PAGE)
    recovered(scene, before)


FEW = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_clients_leave_descriptors_for_what_is_read() -> None:
    """More clients than the process may have files open are turned away before a reading is: none fails for them."""
    prefix = (sys.executable, "-c", FEW, *COMMAND)
    with (
        pages.PageServer(pages.answer(PAGE)) as server,
        daemon("--vllm-url", server.url, "--poll-interval-seconds", "0.2", prefix=prefix) as process,
        httpx.Client(base_url=process.url) as client,
        ExitStack() as stack,
    ):
        address = process.url.removeprefix("http://").split(":")
        before = Page(client.get("/metrics").text)
        for _ in range(150):
            stack.enter_context(closing(socket.create_connection((address[0], int(address[1])))))
        reasons: set[str] = set()
        for _ in range(5):
            server.drop_connections()
            time.sleep(0.25)
            page = Page(client.get("/metrics").text)
            reasons |= {dict(labels)["reason"] for _, labels in page.values("source_down_reason", source="vllm")}
        assert "no_descriptors" not in reasons
        assert (page.value("ticks_total") or 0) > (before.value("ticks_total") or 0)


@contextmanager
def hanging() -> Iterator[tuple[str, ...]]:
    """Two servers that never answer, as flags; one request of each has come in when the daemon serves."""
    with pages.PageServer(pages.silence()) as one, pages.PageServer(pages.silence()) as other:
        yield "--vllm-url", f"{one.url} {other.url}", "--vllm-timeout-seconds", "60", "--gpus", "none"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_while_every_reading_hangs(number: signal.Signals) -> None:
    """With several servers that hang for a minute it ends within seconds, with exit code 0, also when told twice."""
    with hanging() as flags, daemon(*flags) as process:
        time.sleep(0.3)
        begun = time.monotonic()
        process.send(number)
        process.send(number)
        assert process.ended() == 0
        assert time.monotonic() - begun < 8
        assert "Traceback" not in "".join(process.log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_before_the_port_is_bound(number: signal.Signals) -> None:
    """Told while it still reads its settings, it ends, or with SIGHUP starts, without a word of Python's."""
    command = [*COMMAND, "--vllm-url", "http://127.0.0.1:1", "--gpus", "none"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        while not _ignores_sighup(process.pid):
            time.sleep(0.002)
        process.send_signal(number)
        if number == signal.SIGHUP:
            assert any("serves http://" in line for line in process.stderr)
            process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode in (0, -number)
    assert "Traceback" not in said


def _ignores_sighup(pid: int) -> bool:
    """Which it does from the moment it begins to read its settings until it serves."""
    found = re.search(r"SigIgn:\s+([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())
    return found is not None and bool(int(found[1], 16) & 1 << (signal.SIGHUP - 1))


AUDITED = """
import os, resource, runpy, sys
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.symlink", "os.link", "os.mkfifo")
def look(event, arguments):
    named = event == "open" and not isinstance(arguments[0], int)  # a number is a pipe that is there already
    if event in CHANGES or (named and isinstance(arguments[2], int) and arguments[2] & WRITES):
        os.write(2, f"written: {event} {arguments}\\n".encode())
sys.addaudithook(look)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
os.write(2, b"watching\\n")
sys.argv = ["vllm-headroom", *sys.argv[1:]]
runpy.run_module("exporter", run_name="__main__")
"""


def test_nothing_is_written_so_a_full_disk_is_no_fault(tmp_path: Path) -> None:
    """Where no file may have a single byte, in a directory that cannot be written, it runs as ever and opens none."""
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o555)
    prefix = (sys.executable, "-B", "-c", AUDITED, "run", "--listen", "127.0.0.1:0")
    with pages.PageServer(pages.answer(PAGE)) as server:
        with daemon("--vllm-url", server.url, "--gpus", "none", prefix=prefix, directory=empty) as process:
            page = process.after(2)
            assert page.value("source_up", source="vllm") == 1
            for path in ("/", "/api/v1/status", "/readyz"):
                assert httpx.get(process.url + path).status_code == 200
            process.send(signal.SIGTERM)
            assert process.ended() == 0
        assert "watching\n" in process.log
        assert not [line for line in process.log if line.startswith("written: ")]
    assert list(empty.iterdir()) == []


def test_a_log_that_cannot_be_written_costs_only_itself() -> None:
    """With standard error on a full disk it serves and ends as ever."""
    port = _free_port()
    command = [*COMMAND[:-1], f"127.0.0.1:{port}", "--vllm-url", "http://127.0.0.1:1", "--gpus", "none"]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(command, cwd=ROOT, stderr=full)
        try:
            assert _ready(f"http://127.0.0.1:{port}")
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()
            process.wait()


def _free_port() -> int:
    with pages.PageServer(pages.silence()) as server:
        return server.port


def _ready(url: str) -> bool:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return True
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    return False
