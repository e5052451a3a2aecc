"""What the doctor finds about processes, host memory and the kubelet."""

from pathlib import Path

import pytest

from exporter.doctor.host import host_findings, own_findings, process_findings
from exporter.reading import HostReading, Pressure
from exporter.sources.server_process import ServerProcess
from tests.sources.trees import GIB, MIB, SERVE, Machine


def reading(scope: str, **values: int | Pressure | None) -> HostReading:
    usual: dict[str, int | Pressure | None] = {
        "current": 20 * GIB,
        "committed": 15 * GIB,
        "limit": 64 * GIB,
        "dev_shm_used": GIB,
        "dev_shm_limit": 16 * GIB,
        "machine_total": 256 * GIB,
        "machine_available": 100 * GIB,
        "pressure": Pressure(0.0),
    }
    return HostReading(time=0.0, scope=scope, rule="the rule", **(usual | values))  # type: ignore[arg-type]


def test_a_container_with_a_limit_is_all_right() -> None:
    """Use, what of it cannot be given back, and the limit, by the rule that found the group."""
    memory, shm = host_findings(reading("container"))
    assert (memory.level, shm.level) == ("ok", "ok")
    assert memory.seen == "the container: 20.0 GiB used, 15.0 GiB of it not reclaimable, limit 64.0 GiB"
    assert memory.rule == "the rule"
    assert shm.seen == "1.0 GiB of 16.0 GiB used in /dev/shm"


def test_no_limit_is_said_in_words() -> None:
    """Never 0."""
    assert "no limit" in host_findings(reading("pod", limit=None))[0].seen


@pytest.mark.parametrize("scope", ["process", "machine"])
def test_what_is_not_the_containers_is_missing(scope: str) -> None:
    """Cost and change are named."""
    found = host_findings(reading(scope, current=None))[0]
    assert found.level == "missing"
    assert "OOM kills are unknown" in found.cost
    assert "runAsUser" in found.change


def test_container_runtimes_64_mib_of_shm_are_a_warning() -> None:
    """What is given when nothing is asked for is too small for vLLM's workers."""
    shm = host_findings(reading("container", dev_shm_limit=64 * MIB, dev_shm_used=0))[1]
    assert shm.level == "warning"
    assert "emptyDir" in shm.change


def test_past_kills_are_a_warning() -> None:
    """A container that was killed will be again."""
    found = host_findings(reading("container", oom_kills=2))
    assert [f.seen for f in found if f.level == "warning"] == ["the kernel killed it 2 times for memory"]


def test_no_room_is_a_fault() -> None:
    """Offloading that cannot fit is told before it is taken."""
    found = host_findings(reading("container", shmem=0), offloading_gib=100)[-1]
    assert found.level == "fault"
    assert "kv_offloading_size" in found.change


def test_a_kernel_without_psi_is_noted() -> None:
    """Pressure is one field."""
    assert host_findings(reading("container", pressure=None))[-1].change == "boot the node with psi=1"


def test_switched_off_is_a_note() -> None:
    """Someone wanted it so."""
    assert [finding.level for finding in host_findings(None)] == ["note"]


def test_a_server_that_can_be_seen_is_named(tmp_path: Path) -> None:
    """Its process, how many there are, and whether its environment may be read."""
    machine = Machine(tmp_path)
    machine.process(42, SERVE)
    machine.process(43, "VLLM::EngineCore\0", parent=42)
    server = ServerProcess(machine.proc)
    seen, environment = process_findings(server)
    assert (seen.level, seen.seen) == ("ok", "vLLM is process 42, 2 processes in all")
    assert (environment.level, environment.change) == ("missing", "runAsUser: the same as vLLM's container")
    (machine.proc / "42/environ").write_bytes(b"A=b\0")
    assert len(process_findings(server)) == 1


def test_a_server_that_cannot_be_seen_says_what_to_share(tmp_path: Path) -> None:
    """One line of the pod's spec."""
    (found,) = process_findings(ServerProcess(tmp_path))
    assert (found.level, found.change) == ("missing", "shareProcessNamespace: true in the pod's spec")


def test_the_kubelets_answer_and_its_absence() -> None:
    """Told, not asked, asked without a name, asked in vain."""
    socket = Path("/pod-resources/kubelet.sock")
    told = own_findings(socket, True, frozenset({"GPU-2", "GPU-1"}), "")[0]
    assert (told.level, told.seen) == ("ok", "the pod was given GPU-1, GPU-2")
    assert own_findings(None, False, None, "")[0].level == "note"
    nameless = own_findings(socket, False, None, "the pod's name is not known")[0]
    assert (nameless.level, nameless.change) == ("fault", "POD_NAME and POD_NAMESPACE by the downward API")
    assert own_findings(socket, True, None, "it is root's")[0].change == "it is root's"
