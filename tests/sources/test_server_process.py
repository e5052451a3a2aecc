"""Finding the vLLM server among the processes."""

from pathlib import Path

import pytest

from exporter.sources.server_process import ServerProcess, pick, processes
from tests.sources.trees import SERVE, Machine

MODULE = "python3\0-m\0vllm.entrypoints.openai.api_server\0--port\x008001\0"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("command", "port"),
    [
        (SERVE, 8000),
        (MODULE, 8001),
        ("vllm\0serve\0model\0--port=9000\0", 9000),
        ("python3\0-m\0vllm\0serve\0model\0", 8000),
        ("python3\0app.py\0vllm\0", None),
        ("grep\0vllm serve\0", None),
        ("vllm-headroom\0run\0", None),
        ("", None),
    ],
)
def test_a_server_is_known_by_its_command_line(machine: Machine, command: str, port: int | None) -> None:
    """`vllm serve` and the API server's module, with the port they listen on; nothing that merely mentions vLLM."""
    machine.process(7, command)
    assert processes(machine.proc)[0].port == port


def test_the_tree_below_the_server_is_its_own(machine: Machine) -> None:
    """Engine core and workers are children, at any depth; the shell above and a neighbour are not."""
    machine.process(1, "tini\0--\0vllm\0", parent=0)
    machine.process(10, SERVE)
    machine.process(11, "VLLM::EngineCore\0", parent=10)
    machine.process(12, "VLLM::Worker_TP0\0", parent=11)
    machine.process(13, "python3\0-c\0from multiprocessing.resource_tracker\0", parent=12)
    machine.process(50, "vllm-headroom\0run\0")
    server = pick(processes(machine.proc))
    assert server is not None
    assert server.pids == {10, 11, 12, 13}
    assert server.main.pid == 10


def test_titled_processes_alone_are_a_server(machine: Machine) -> None:
    """Where a launcher of another name started vLLM, its processes still carry vLLM's titles."""
    machine.process(11, "VLLM::EngineCore\0", parent=5)
    machine.process(12, "ray::RayWorkerWrapper.execute_method\0", parent=6)
    server = pick(processes(machine.proc))
    assert server is not None
    assert server.pids == {11, 12}


def test_among_several_servers_the_port_decides(machine: Machine) -> None:
    """With the host's processes in sight, another pod's server is not this one; its title alone makes it nobody's."""
    machine.process(10, SERVE)
    machine.process(11, "VLLM::EngineCore\0", parent=10)
    machine.process(20, MODULE)
    machine.process(21, "VLLM::EngineCore\0", parent=20)
    seen = processes(machine.proc)
    picked = pick(seen, frozenset({8001}))
    assert picked is not None
    assert picked.pids == {20, 21}
    both = pick(seen)
    assert both is not None
    assert both.pids == {10, 11, 20, 21}


def test_a_name_with_a_bracket_does_not_upset_the_parser(machine: Machine) -> None:
    """A process may be called anything, `) S 1` too."""
    machine.process(10, SERVE, name="x) S 1 (y", parent=3)
    assert processes(machine.proc)[0].parent == 3


def test_what_ends_meanwhile_is_left_out(machine: Machine) -> None:
    """A directory without its files, and one that is no process, are no processes; nor is a zombie."""
    (machine.proc / "99").mkdir()
    (machine.proc / "sys").mkdir()
    machine.process(10, SERVE)
    (machine.proc / "10/stat").write_text("10 (vllm) Z 1 " + " ".join(["0"] * 17) + " 100 0\n")
    assert processes(machine.proc) == []
    assert processes(machine.proc / "absent") == []


def test_a_restart_is_noticed_at_once_and_absence_looked_at_again(machine: Machine) -> None:
    """A server whose PID is taken by another start is looked for again before the interval is over."""
    now = 0.0
    server = ServerProcess(machine.proc, seconds=10, clock=lambda: now)
    assert server.find() is None
    machine.process(10, SERVE)
    assert server.find() is None
    now = 10.0
    first = server.find()
    machine.process(10, SERVE, started=900)
    second = server.find()
    assert first is not None
    assert second is not None
    assert (first.main.started, second.main.started) == (100, 900)
    machine.end(10)
    assert server.find() is None


def test_the_environment_is_the_servers(machine: Machine) -> None:
    """Names and values as the process was started with; an entry without `=` is left out."""
    path = machine.process(10, SERVE)
    (path / "environ").write_bytes(b"CUDA_VISIBLE_DEVICES=0,1\0ODD\0A=b=c\0")
    assert ServerProcess(machine.proc).environment() == {"CUDA_VISIBLE_DEVICES": "0,1", "A": "b=c"}


def test_without_a_server_there_is_no_environment(machine: Machine) -> None:
    """It is told apart from one that may not be read."""
    with pytest.raises(ProcessLookupError):
        ServerProcess(machine.proc).environment()


def test_visible_pids_are_those_in_proc(machine: Machine) -> None:
    """Attribution asks whether a PID can be seen at all."""
    machine.process(10, SERVE)
    view = ServerProcess(machine.proc).view()
    assert view.server == {10}
    assert view.visible(10)
    assert not view.visible(28290)
