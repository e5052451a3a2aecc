"""The tick over fake devices: what a failing question costs, whose memory it is, when ownership is asked again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import SourceError
from exporter.sources.device import Identity, Memory, ProcessView, attribute, read_device
from exporter.sources.gpu_owner import Evidence
from exporter.sources.gpus import GpuSource
from tests.sources.fakes import GIB, FakeDevice, FakeLibrary, gpu


def test_every_visible_gpu_is_read_and_the_rule_is_known() -> None:
    """Without evidence all are the server's, and the source says that this is why."""
    source = GpuSource(FakeLibrary(gpu(0), gpu(1)))
    assert [reading.uuid for reading in source.read(0.0)] == ["GPU-0", "GPU-1"]
    assert source.ownership is not None
    assert source.ownership.rule == "all_visible"


def test_only_the_servers_gpus_are_read() -> None:
    """A neighbour's GPU is not asked for its memory."""
    stranger = FakeDevice(Identity(1, "GPU-1"), "gpu_lost")
    source = GpuSource(FakeLibrary(gpu(0), stranger), evidence=lambda _now: Evidence(frozenset({"GPU-0"})))
    assert [reading.uuid for reading in source.read(0.0)] == ["GPU-0"]


def test_ownership_is_asked_again() -> None:
    """A server that starts after the exporter is found within the interval, by the memory it holds."""
    first, second = gpu(0), gpu(1)
    view = ProcessView()
    source = GpuSource(FakeLibrary(first, second), processes=lambda _now: view, ownership_seconds=30)
    assert len(source.read(0.0)) == 2
    second.holds = {42: 10 * GIB}
    view = ProcessView(frozenset({42}))
    assert len(source.read(29.0)) == 2
    assert [reading.uuid for reading in source.read(30.0)] == ["GPU-1"]
    assert source.ownership is not None
    assert source.ownership.rule == "process_memory"


def test_a_configured_gpu_that_is_absent_takes_the_source_down_until_it_is_there() -> None:
    """The error says what can be seen; the library stays open meanwhile."""
    library = FakeLibrary(gpu(0))
    source = GpuSource(library, ("GPU-1",))
    for now in (0.0, 1.0):
        with pytest.raises(SourceError, match="visible: GPU-0") as error:
            source.read(now)
        assert error.value.reason == "gpu_not_found"
    assert (library.opened, library.closed) == (1, 0)


def test_while_down_the_library_is_left_alone() -> None:
    """Openings are 1, 2, 4, … seconds apart, at most a minute; between them the same reason is given at once."""
    library = FakeLibrary(gpu())
    library.refusal = "driver_not_loaded"
    source = GpuSource(library)
    for now in range(400):
        with pytest.raises(SourceError) as error:
            source.read(float(now))
        assert error.value.reason == "driver_not_loaded"
    assert library.tried == 12, "at 0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303 and 363 seconds"
    library.refusal = None
    assert source.read(1000.0)
    assert library.opened == 1


def test_every_error_is_a_new_one() -> None:
    """The same exception raised again and again would collect a traceback for every tick."""
    source = GpuSource(FakeLibrary())
    errors = []
    for now in (0.0, 0.1, 0.2):
        with pytest.raises(SourceError) as error:
            source.read(now)
        errors.append(error.value)
    assert len({id(error) for error in errors}) == 3


def test_a_device_that_is_lost_and_found_is_reopened_with_matching_closes() -> None:
    """Every opening but the last has its close."""
    device = gpu()
    library = FakeLibrary(device)
    source = GpuSource(library)
    whole = device.says
    for now in range(0, 1000, 100):
        device.says = whole
        assert source.read(float(now))
        device.says = "gpu_lost"
        with pytest.raises(SourceError, match="fell off the bus"):
            source.read(float(now + 1))
    assert library.opened == library.closed == 10
    source.close()
    assert library.closed == 10


def test_a_partly_lost_machine_says_so() -> None:
    """The reading goes on with what is there, and `degraded` names the reason until all answer again."""
    first, second = gpu(0), gpu(1)
    source = GpuSource(FakeLibrary(first, second))
    source.read(0.0)
    assert source.degraded is None
    whole, second.says = second.says, "gpu_lost"
    lost = source.read(1.0)[1]
    assert (lost.free, lost.missing["memory"]) == (None, "gpu_lost")
    assert str(source.degraded) == "gpu_lost"
    second.says = whole
    source.read(100.0)
    assert source.degraded is None


def test_a_field_that_fails_costs_one_field() -> None:
    """A process list without permission leaves the memory, and memory without permission leaves the processes."""
    view = ProcessView(frozenset({42}))
    listless = read_device(FakeDevice(Identity(0, "a"), Memory(8, 6, 2), "no_permission"), 0.0, view, lambda: None)
    assert (listless.used, listless.unattributed, listless.missing) == (6, 6, {"processes": "no_permission"})
    closed = read_device(FakeDevice(Identity(0, "a"), "no_permission", {42: 5}), 0.0, view, lambda: (9, 9))
    assert (closed.total, closed.free, closed.this_process, closed.unified) == (None, None, 5, False)


@pytest.mark.parametrize("name", ["Orin (nvgpu)", "NVIDIA GB10", "NVIDIA Thor"])
def test_parts_with_the_machines_memory_say_so(name: str) -> None:
    """Jetson and GB10 answer "[N/A]" for their memory: total and free are the machine's, and nothing crashes."""
    device = FakeDevice(Identity(0, "GPU-0", name), "not_supported", "not_supported")
    reading = read_device(device, 0.0, ProcessView(), lambda: (64 * GIB, 20 * GIB))
    assert (reading.unified, reading.total, reading.free, reading.used) == (True, 64 * GIB, 20 * GIB, None)


def test_a_mig_slice_that_does_not_tell_is_unknown() -> None:
    """A slice without figures is absent, never the machine's memory and never its parent's."""
    slice_ = Identity(0, "MIG-1", mig_index=0, parent_uuid="GPU-0")
    reading = read_device(FakeDevice(slice_, "not_supported"), 0.0, ProcessView(), lambda: (64 * GIB, 20 * GIB))
    assert (reading.unified, reading.total, reading.free) == (False, None, None)


def test_a_stranger_beside_a_known_server_is_a_neighbour() -> None:
    """Once the server's own PID is in the list, the list counts in our numbers: what cannot be seen is another's."""
    shares = attribute({42: 60, 28290: 10}, 75, ProcessView(frozenset({42}), lambda _pid: False))
    assert (shares.this_process, shares.other_processes, shares.unattributed) == (60, 10, 5)


@given(
    st.dictionaries(st.integers(1, 9), st.none() | st.integers(0, 100), max_size=6),
    st.none() | st.integers(0, 500),
    st.frozensets(st.integers(1, 9)),
    st.frozensets(st.integers(1, 9)),
)
def test_attribution_never_makes_memory_up(
    held: dict[int, int | None], used: int | None, server: frozenset[int], visible: frozenset[int]
) -> None:
    """What is attributed was listed; with a total the rest is unattributed, and no part is negative."""
    shares = attribute(held, used, ProcessView(server, visible.__contains__))
    listed = sum(size for size in held.values() if size is not None)
    given_out = (shares.this_process or 0) + (shares.other_processes or 0)
    assert given_out <= listed
    assert (shares.unattributed is None) == (used is None)
    if used is not None and shares.unattributed is not None:
        assert shares.unattributed == max(0, used - given_out)
    if not (held.keys() & (server | visible)):
        assert shares.this_process is None
        assert shares.other_processes is None


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (
            "library_not_found",
            "runtimeClassName nvidia with NVIDIA_VISIBLE_DEVICES and NVIDIA_DRIVER_CAPABILITIES=utility",
        ),
        ("driver_mismatch", "restart the pod"),
        ("unknown", "systemctl daemon-reload"),
        ("no_permission", "/dev/nvidia"),
    ],
)
def test_a_source_that_is_down_says_what_to_change(reason: str, advice: str) -> None:
    """The sentence for people names the way out, in words of a manifest."""
    library = FakeLibrary(gpu())
    library.refusal = reason
    with pytest.raises(SourceError, match=advice) as error:
        GpuSource(library).read(0.0)
    assert (error.value.source, error.value.reason) == ("nvml", reason)
