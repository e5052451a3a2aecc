"""What the doctor finds about GPUs."""

import pytest

from exporter.doctor.finding import Finding
from exporter.doctor.gpu import gpu_findings
from exporter.sources.device import Identity, Memory, ProcessView
from exporter.sources.gpu_owner import Evidence
from exporter.sources.gpus import GpuSource
from tests.sources.fakes import GIB, FakeDevice, FakeLibrary, gpu


def levels(findings: list[Finding]) -> list[str]:
    return [finding.level for finding in findings]


def one(findings: list[Finding], word: str) -> Finding:
    (found,) = (finding for finding in findings if word in finding.seen)
    return found


def test_a_card_of_its_own_is_all_right() -> None:
    """Driver, rule, memory and attribution are seen, each by its rule."""
    device = FakeDevice(Identity(0, "GPU-0", "NVIDIA H100"), Memory(80 * GIB, 70 * GIB, 9 * GIB, GIB), {42: 60 * GIB})
    view = ProcessView(frozenset({42}))
    source = GpuSource(FakeLibrary(device), processes=lambda _now: view)
    found = gpu_findings(source, 0.0, driver=lambda: "580.65.06")
    assert set(levels(found)) == {"ok"}
    assert [finding.seen for finding in found] == [
        "NVML works, driver 580.65.06",
        "1 GPU of this server: the GPUs on which the server's process holds memory",
        "GPU 0 GPU-0 NVIDIA H100: 70.0 GiB used, 1.0 GiB reserved, 9.0 GiB free of 80.0 GiB",
        "memory is told apart by process; 0 MiB are other processes'",
    ]
    assert found[1].rule == "the memory its process holds"


@pytest.mark.parametrize(
    ("reason", "level"),
    [
        ("library_not_found", "missing"),
        ("driver_not_loaded", "missing"),
        ("driver_mismatch", "fault"),
        ("no_permission", "fault"),
        ("unknown", "fault"),
    ],
)
def test_an_absent_driver_is_missing_and_a_broken_one_a_fault(reason: str, level: str) -> None:
    """Each names its cost and the way out."""
    library = FakeLibrary()
    library.refusal = reason
    (found,) = gpu_findings(GpuSource(library), 0.0)
    assert found.level == level
    assert "out-of-memory" in found.cost
    assert len(found.change) > 20


def test_several_gpus_of_unknown_owner_are_missing_their_owner() -> None:
    """What each rule lacked becomes what to change."""
    source = GpuSource(FakeLibrary(gpu(0), gpu(1)), evidence=lambda _now: Evidence(notes=("mount the socket",)))
    found = one(gpu_findings(source, 0.0), "2 GPUs of this server")
    assert found.level == "missing"
    assert found.change.startswith("mount the socket; or name them in VLLM_HEADROOM_GPUS")


def test_an_index_among_unlike_gpus_is_a_warning() -> None:
    """CUDA may count them otherwise than everyone thinks."""
    slow = FakeDevice(Identity(0, "GPU-0", "RTX 3090"), Memory(8, 6, 2))
    fast = FakeDevice(Identity(1, "GPU-1", "RTX 5090"), Memory(8, 6, 2))
    evidence = Evidence(environment={"CUDA_VISIBLE_DEVICES": "0"}, held_uuids=frozenset({"GPU-1"}))
    found = gpu_findings(GpuSource(FakeLibrary(slow, fast), evidence=lambda _now: evidence), 0.0)
    assert one(found, "GPU 0 by index among GPUs of different kinds").level == "warning"


def test_a_single_gpu_of_unknown_owner_is_only_noted() -> None:
    """There is nothing to mix up."""
    assert one(gpu_findings(GpuSource(FakeLibrary(gpu(0))), 0.0), "1 GPU of this server").level == "note"


def test_a_gpu_that_fell_off_the_bus_is_a_fault_beside_a_good_one() -> None:
    """The good one is shown all the same."""
    source = GpuSource(FakeLibrary(gpu(0), FakeDevice(Identity(1, "GPU-1"), "gpu_lost")))
    found = gpu_findings(source, 0.0)
    assert one(found, "GPU 1 GPU-1: memory gpu lost").level == "fault"
    assert one(found, "GPU 0 GPU-0").level == "ok"


def test_a_refused_card_says_what_to_allow() -> None:
    """Permission is a matter of the manifest, not a fault of the card."""
    source = GpuSource(FakeLibrary(FakeDevice(Identity(0, "GPU-0"), "no_permission")))
    found = one(gpu_findings(source, 0.0), "no permission")
    assert (found.level, found.change) == ("missing", "allow the container its /dev/nvidia* devices")


def test_no_room_for_one_allocation_is_a_fault() -> None:
    """What would be predicted at the first reading is said here too."""
    source = GpuSource(FakeLibrary(gpu(0, used=80 * GIB - 2**27)))
    found = one(gpu_findings(source, 0.0, allocations={"logits_chunk": 2**28}), "are free, less than")
    assert found.level == "fault"


def test_a_utilization_that_leaves_a_small_card_too_little_is_a_warning() -> None:
    """0.98 on 22 GiB has been seen to fail; the same on 80 GiB has not."""
    small = FakeDevice(Identity(0, "GPU-0"), Memory(22 * GIB, 20 * GIB, 2 * GIB))
    found = one(gpu_findings(GpuSource(FakeLibrary(small)), 0.0, utilization=0.98), "too little for CUDA graphs")
    assert (found.level, found.change) == ("warning", "gpu_memory_utilization 0.96 or less")
    assert "warning" not in levels(gpu_findings(GpuSource(FakeLibrary(gpu(0))), 0.0, utilization=0.98))


def test_memory_beyond_the_budget_is_noted() -> None:
    """CUDA graphs lie on top of it: a note, not a fault."""
    found = one(gpu_findings(GpuSource(FakeLibrary(gpu(0, used=75 * GIB))), 0.0, utilization=0.9), "beyond")
    assert found.level == "note"
    assert "3.0 GiB beyond gpu_memory_utilization 0.9" in found.seen


def test_unattributed_memory_says_why() -> None:
    """PIDs of another namespace, and what makes them readable."""
    source = GpuSource(FakeLibrary(FakeDevice(Identity(0, "GPU-0"), Memory(8, 6, 2), {28290: 5})))
    found = one(gpu_findings(source, 0.0), "whose memory it is cannot be told: pid namespace")
    assert found.level == "missing"


def test_switched_off_is_a_note() -> None:
    """Someone wanted it so; the cost is still named."""
    (found,) = gpu_findings(None, 0.0)
    assert (found.level, found.rule) == ("note", "VLLM_HEADROOM_GPUS=none")
