"""Host memory of the server, from trees as the kernel lays them out, and from this machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.reading import HostReading, Pressure
from exporter.sources.host import HostSource
from exporter.sources.server_process import ServerProcess
from tests.sources.trees import GIB, MIB, SERVE, Machine, group_v1, group_v2

POD = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b_2c.slice"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def source(machine: Machine, pod_uid: str | None = None) -> HostSource:
    server = ServerProcess(machine.proc, seconds=0)
    return HostSource(server, proc=machine.proc, cgroup=machine.cgroup, dev_shm=machine.proc, pod_uid=pod_uid)


def read(machine: Machine, pod_uid: str | None = None) -> HostReading:
    return source(machine, pod_uid).read(7.0)


def test_a_service_is_read_by_its_control_group(machine: Machine) -> None:
    """Without containers the path in /proc/PID/cgroup is the group; every field is the kernel's."""
    group_v2(
        machine.cgroup / "system.slice/vllm.service",
        50 * GIB,
        limit=60 * GIB,
        anon=30 * GIB,
        shmem=8 * GIB,
        cache=12 * GIB,
        inactive=5 * GIB,
        kills=1,
        hits=4,
    )
    machine.process(42, SERVE, group="0::/system.slice/vllm.service")
    reading = read(machine)
    assert (reading.time, reading.scope) == (7.0, "container")
    assert "/system.slice/vllm.service" in reading.rule
    assert (reading.current, reading.limit, reading.anon) == (50 * GIB, 60 * GIB, 30 * GIB)
    assert (reading.shmem, reading.file, reading.swap) == (8 * GIB, 20 * GIB, 0)
    assert reading.working_set == 45 * GIB
    assert reading.committed == 38 * GIB, "page cache can be given back, shared memory cannot"
    assert (reading.oom_kills, reading.ooms, reading.limit_hits) == (1, 1, 4)
    assert reading.pressure == Pressure(0.125, 0.03, 0.04, 0.01, 2.5, 1.0)
    assert (reading.machine_total, reading.machine_available) == (64 * GIB, 40 * GIB)


def test_no_limit_is_absent(machine: Machine) -> None:
    """`max` in version 2 is no limit, never 0."""
    group_v2(machine.cgroup / "a", GIB)
    machine.process(42, SERVE, group="0::/a")
    reading = read(machine)
    assert reading.limit is None
    assert reading.swap_limit is None


def test_version_1_is_read_where_it_must_be(machine: Machine) -> None:
    """Limits, resident memory, kills and limit hits of version 1; its huge number for "no limit" is absent."""
    group_v1(machine.cgroup / "memory/docker/x", 10 * GIB, rss=6 * GIB, shmem=GIB)
    machine.process(42, SERVE, group="9:name=systemd:/\n4:memory,hugetlb:/docker/x\n0::/")
    reading = read(machine)
    assert (reading.current, reading.limit, reading.anon, reading.shmem) == (10 * GIB, None, 6 * GIB, GIB)
    assert (reading.working_set, reading.committed) == (9 * GIB, 8 * GIB)
    assert (reading.oom_kills, reading.limit_hits) == (2, 7)


def test_a_version_1_limit_is_a_limit(machine: Machine) -> None:
    """A number that someone set is kept."""
    group_v1(machine.cgroup / "memory/docker/x", GIB, limit=4 * GIB)
    machine.process(42, SERVE, group="4:memory:/docker/x")
    assert read(machine).limit == 4 * GIB


def test_the_exporters_own_group_is_never_taken_for_the_servers(machine: Machine) -> None:
    """In a sidecar /sys/fs/cgroup is the sidecar's; the server's path leads out of it, so memory is its processes'."""
    group_v2(machine.cgroup, 60 * MIB, limit=128 * MIB)
    machine.process(42, SERVE, group="0::/../cri-containerd-abc.scope")
    machine.process(43, "VLLM::EngineCore\0", parent=42, group="0::/../cri-containerd-abc.scope")
    machine.resident(42, anon=GIB, shmem=0, file=GIB)
    machine.resident(43, anon=9 * GIB, shmem=2 * GIB)
    reading = read(machine)
    assert reading.scope == "process"
    assert (reading.current, reading.anon, reading.shmem) == (13 * GIB, 10 * GIB, 2 * GIB)
    assert reading.limit is None
    assert reading.missing["limit"] == "no_cgroup"


def test_the_containers_own_view_is_used(machine: Machine) -> None:
    """With a shared PID namespace and the server's user, /proc/PID/root shows the server's group."""
    group_v2(machine.cgroup, 60 * MIB, limit=128 * MIB)
    path = machine.process(42, SERVE, group="0::/../cri-containerd-abc.scope")
    group_v2(path / "root/sys/fs/cgroup", 20 * GIB, limit=32 * GIB)
    reading = read(machine)
    assert (reading.scope, reading.current, reading.limit) == ("container", 20 * GIB, 32 * GIB)
    assert "/proc/42/root" in reading.rule


def test_a_group_is_found_by_name_in_the_hosts_hierarchy(machine: Machine) -> None:
    """With the host's hierarchy mounted, the last part of the relative path finds the container."""
    group_v2(machine.cgroup / POD / "cri-containerd-abc.scope", 20 * GIB, limit=32 * GIB)
    group_v2(machine.cgroup / POD, 21 * GIB)
    machine.process(42, SERVE, group="0::/../cri-containerd-abc.scope")
    reading = read(machine)
    assert (reading.scope, reading.current) == ("container", 20 * GIB)


def test_one_container_for_both_is_recognised(machine: Machine) -> None:
    """Where server and exporter share a container, its group is the server's."""
    group_v2(machine.cgroup, 20 * GIB, limit=32 * GIB)
    machine.process(42, SERVE, group="0::/")
    (machine.proc / "self").mkdir()
    (machine.proc / "self/cgroup").write_text("0::/\n")
    assert read(machine).limit == 32 * GIB


def test_the_root_of_a_whole_hierarchy_is_not_a_container(machine: Machine) -> None:
    """A version 1 root group counts the machine's memory; the server's is then its processes'."""
    group_v1(machine.cgroup / "memory", 50 * GIB)
    (machine.cgroup / "memory/cgroup.sane_behavior").write_text("0\n")
    machine.process(42, SERVE, group="4:memory:/")
    machine.resident(42, anon=GIB)
    reading = read(machine)
    assert (reading.scope, reading.current) == ("process", GIB)


def test_a_pods_nearer_limit_comes_first(machine: Machine) -> None:
    """A container without a limit in a pod with one is killed at the pod's."""
    group_v2(machine.cgroup / POD / "ctr", 20 * GIB)
    group_v2(machine.cgroup / POD, 30 * GIB, limit=32 * GIB)
    machine.process(42, SERVE, group=f"0::/{POD}/ctr")
    reading = read(machine)
    assert (reading.scope, reading.limit, reading.current) == ("pod", 32 * GIB, 30 * GIB)


@pytest.mark.parametrize("directory", [POD, "kubepods/burstable/pod1b-2c"])
def test_the_pod_is_found_by_its_uid(machine: Machine, directory: str) -> None:
    """Without a shared PID namespace the pod's UID finds its group, in both spellings of the drivers."""
    group_v2(machine.cgroup / directory, 30 * GIB, limit=32 * GIB)
    reading = read(machine, pod_uid="1b-2c")
    assert (reading.scope, reading.limit) == ("pod", 32 * GIB)


def test_nothing_to_be_seen_leaves_the_machine(machine: Machine) -> None:
    """Nobody's memory is reported as the server's, and the rule says what to change."""
    group_v2(machine.cgroup, 60 * MIB, limit=128 * MIB)
    reading = read(machine)
    assert (reading.scope, reading.current, reading.limit, reading.oom_kills) == ("machine", None, None, None)
    assert reading.machine_available == 40 * GIB
    assert "shareProcessNamespace" in reading.rule


def test_a_missing_file_costs_one_field(machine: Machine) -> None:
    """A kernel without swap accounting, PSI or events still gives the rest."""
    path = group_v2(machine.cgroup / "a", 2 * GIB, limit=4 * GIB, anon=GIB)
    for name in ("memory.swap.current", "memory.swap.max", "memory.pressure", "memory.events", "memory.stat"):
        (path / name).unlink()
    machine.process(42, SERVE, group="0::/a")
    (machine.proc / "vmstat").unlink()
    reading = read(machine)
    assert (reading.current, reading.limit) == (2 * GIB, 4 * GIB)
    assert (reading.swap, reading.pressure, reading.anon, reading.committed) == (None, None, None, None)
    assert (reading.oom_kills, reading.limit_hits) == (None, None)


def test_dev_shm_is_the_servers_own(machine: Machine) -> None:
    """Its size comes from the server's mount; where that cannot be seen it is absent, not the exporter's."""
    path = machine.process(42, SERVE)
    assert read(machine).missing["dev_shm"] == "no_permission"
    mount = "30 25 0:27 / /dev/shm rw - tmpfs tmpfs rw\n"
    (path / "mountinfo").write_text(mount)
    (machine.proc / "self").mkdir()
    (machine.proc / "self/mountinfo").write_text(mount)
    reading = read(machine)
    stat = os.statvfs(machine.proc)
    assert reading.dev_shm_limit == stat.f_blocks * stat.f_frsize
    (machine.proc / "self/mountinfo").write_text(mount.replace("0:27", "0:99"))
    assert read(machine).dev_shm_limit is None


def test_the_dev_shm_in_the_servers_root_comes_first(machine: Machine) -> None:
    """With the right to look into the server's root no comparison of mounts is needed."""
    (machine.process(42, SERVE) / "root/dev/shm").mkdir(parents=True)
    reading = read(machine)
    assert reading.dev_shm_limit is not None
    assert reading.dev_shm_used is not None


def test_a_kill_is_counted_over_a_restart_of_the_container(machine: Machine) -> None:
    """A kill in the first container stays counted when the second one's counter starts from 0."""
    group_v2(machine.cgroup / "one", GIB)
    machine.process(42, SERVE, group="0::/one")
    host = source(machine)
    assert host.read(0.0).oom_kills == 0
    group_v2(machine.cgroup / "one", GIB, kills=1)
    assert host.read(1.0).oom_kills == 1
    machine.end(42)
    assert host.read(2.0).oom_kills == 1
    group_v2(machine.cgroup / "two", GIB)
    machine.process(99, SERVE, started=500, group="0::/two")
    reading = host.read(3.0)
    assert (reading.oom_kills, reading.oom_kills_inferred) == (1, 0)
    assert reading.server_starts == 2
    group_v2(machine.cgroup / "two", GIB, kills=1)
    assert host.read(4.0).oom_kills == 2


def test_the_pods_counter_survives_the_container(machine: Machine) -> None:
    """Where the pod's group can be seen its counter is followed: nothing needs to be inferred."""
    group_v2(machine.cgroup / POD / "one", GIB)
    group_v2(machine.cgroup / POD, GIB)
    machine.process(42, SERVE, group=f"0::/{POD}/one")
    host = source(machine)
    assert host.read(0.0).oom_kills == 0
    machine.end(42)
    machine.kills(1)
    for file in (machine.cgroup / POD / "one").iterdir():
        file.unlink()
    (machine.cgroup / POD / "one").rmdir()
    group_v2(machine.cgroup / POD, GIB, kills=1)
    reading = host.read(1.0)
    assert (reading.oom_kills, reading.oom_kills_inferred) == (1, 0)


@pytest.mark.parametrize(("machine_kills", "expected"), [(1, (1, 1)), (0, (0, 0))])
def test_a_kill_that_took_the_group_with_it_is_inferred(
    machine: Machine, machine_kills: int, expected: tuple[int, int]
) -> None:
    """The server and its group went in the interval in which the machine counted a kill; without one it just ended."""
    path = group_v2(machine.cgroup / "one", GIB)
    machine.process(42, SERVE, group="0::/one")
    host = source(machine)
    host.read(0.0)
    machine.end(42)
    machine.kills(machine_kills)
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    reading = host.read(1.0)
    assert (reading.oom_kills, reading.oom_kills_inferred) == expected
    assert host.read(2.0).oom_kills == expected[0]


def test_somebody_elses_kill_is_not_the_servers(machine: Machine) -> None:
    """The machine's counter alone proves nothing while the server lives."""
    group_v2(machine.cgroup / "one", GIB)
    machine.process(42, SERVE, group="0::/one")
    host = source(machine)
    host.read(0.0)
    machine.kills(5)
    assert host.read(1.0).oom_kills == 0


@contextmanager
def running_server(directory: Path, port: int, mib: int) -> Iterator[int]:
    """A real process whose command line is that of a vLLM server and that holds some memory."""
    script = directory / "vllm"
    script.write_text(
        "import sys\nheld = bytearray(int(sys.argv[4]) << 20)\nprint('ready', flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, str(script), "serve", "--port", str(port), str(mib)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.communicate()


def test_a_real_process_is_found_and_weighed(tmp_path: Path) -> None:
    """On this machine's own /proc a server is found by its command line and port, and its resident memory counted."""
    with running_server(tmp_path, 54871, 96) as pid:
        server = ServerProcess(ports=frozenset({54871}))
        found = server.find()
        assert found is not None
        assert found.main.pid == pid
        assert server.environment()["PATH"] == os.environ["PATH"]
        reading = HostSource(server, cgroup=tmp_path / "none").read(0.0)
        assert reading.scope == "process"
        assert reading.anon is not None
        assert 96 * MIB <= reading.anon < 160 * MIB
        assert reading.dev_shm_limit is not None


def test_this_machines_own_hierarchy_is_read(tmp_path: Path) -> None:
    """Whatever version of control groups this kernel has, a real server on it gets a reading that makes sense."""
    with running_server(tmp_path, 54872, 32):
        reading = HostSource(ServerProcess(ports=frozenset({54872}))).read(0.0)
    assert reading.scope in ("container", "pod", "process")
    assert reading.current is not None
    assert reading.current >= 32 * MIB
    assert reading.machine_total is not None
    assert reading.limit is None or reading.limit > 0
