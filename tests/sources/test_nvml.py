"""The real pynvml against a stub of the driver's library, compiled here."""

from pathlib import Path
from typing import Any

import pytest

from tests.nvml_stub.stub import GIB, build, run, without_driver

EXPORTER = Path(__file__).parents[2] / "exporter"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def old_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("old"), "OLD_DRIVER", "NO_MIG")


def only(readings: Any) -> dict[str, Any]:
    assert isinstance(readings, list), readings
    assert len(readings) == 1
    return dict(readings[0])


def test_an_ordinary_card_is_read_with_its_reserved_memory_apart(driver: Path) -> None:
    """Memory v2 gives total, used, free and reserved, which add up; index, UUID and name come with them."""
    reading = only(run("ordinary", driver))
    assert reading["total"] == 80 * GIB
    assert (reading["used"], reading["reserved"], reading["free"]) == (70 * GIB, GIB, 9 * GIB)
    assert (reading["gpu"], reading["uuid"], reading["name"]) == ("0", "GPU-00000000", "NVIDIA Stub")
    assert (reading["time"], reading["unified"]) == (5.0, False)


def test_an_old_driver_falls_back_to_version_1(old_driver: Path) -> None:
    """Without the symbols of memory v2, process lists and MIG the card is still read; reserved is absent, not 0."""
    reading = only(run("ordinary", old_driver))
    assert (reading["total"], reading["used"], reading["free"]) == (80 * GIB, 71 * GIB, 9 * GIB)
    assert reading["reserved"] is None
    assert reading["missing"] == {"processes": "not_supported"}


def test_wsl_falls_back_from_an_unknown_error_of_v2(driver: Path) -> None:
    """Memory v2 that answers Unknown Error while v1 works costs the reserved field and nothing else."""
    reading = only(run("memory_v2_unknown", driver))
    assert (reading["free"], reading["reserved"]) == (9 * GIB, None)


def test_without_a_driver_the_source_says_so_and_pynvml_is_not_imported(tmp_path: Path) -> None:
    """LibraryNotFound is a state with a word of its own, and costs no memory."""
    assert run("no_library", without_driver(tmp_path)) == {"said": "library_not_found", "imported": False}


def test_a_library_without_its_initialisation_is_told(tmp_path: Path) -> None:
    """A missing symbol is not a crash."""
    assert run("absent_init", build(tmp_path, "NO_INIT")) == "function_not_found"


@pytest.mark.parametrize(
    ("code", "reason"),
    [(9, "driver_not_loaded"), (18, "driver_mismatch"), (4, "no_permission"), (999, "unknown"), (12345, "unknown")],
)
def test_a_refused_initialisation_has_its_reason(driver: Path, code: int, reason: str) -> None:
    """Not loaded, mismatched, refused and unknown are told apart, and no reference to NVML is kept."""
    assert run("init_code", driver, code) == {"said": reason, "references": 0}


def test_no_permission_is_not_unified_memory(driver: Path) -> None:
    """Insufficient permissions cost the memory fields; the machine's memory is not put in their place, nor 0."""
    reading = only(run("memory_code", driver, 4))
    assert reading["missing"]["memory"] == "no_permission"
    assert not reading["unified"]
    assert (reading["total"], reading["used"], reading["free"]) == (None, None, None)


def test_unsupported_memory_is_the_machines(driver: Path) -> None:
    """Where the GPU has no memory of its own, total and free are the machine's and used is the processes'."""
    reading = only(run("memory_code", driver, 3))
    assert reading["unified"]
    assert (reading["total"], reading["free"], reading["used"]) == (128 * GIB, 100 * GIB, 741326848)


def test_unified_memory_follows_the_process_list(driver: Path) -> None:
    """On a GB10 the process query sees 512 MiB more after they were allocated, while the device query fails."""
    before, after = (only(readings) for readings in run("growing_unified", driver))
    assert (before["used"], after["used"]) == (741326848, 1278197760)
    assert after["this_process"] - before["this_process"] == 512 * 2**20


@pytest.mark.parametrize("code", [15, 16, 9, 18, 1, 999])
def test_a_device_that_is_gone_takes_the_source_down(driver: Path, code: int) -> None:
    """Lost, needs a reset, driver gone, mismatch, uninitialised, unknown: no reading, never a frozen one."""
    assert isinstance(run("memory_code", driver, code), str)


def test_nonsense_figures_are_unsupported(driver: Path) -> None:
    """A total of 0, or more used than there is, is not a memory."""
    for readings in run("nonsense", driver):
        reading = only(readings)
        assert reading["missing"]["memory"] == "not_supported"
        assert reading["total"] is None


def test_unknown_error_on_the_second_poll_backs_off_and_recovers(driver: Path) -> None:
    """After a daemon-reload the source is down, tries five times in a minute, leaks no reference, and comes back."""
    result = run("unknown_on_second_poll", driver)
    first, second, later = result["said"]
    assert only(first)["free"] == 9 * GIB
    assert (second, later) == ("unknown", "unknown")
    assert result["attempts"] == 5
    assert 61 <= result["back"] <= 64
    assert result["references"] == [0, 1]


def test_a_lost_gpu_does_not_take_its_neighbour_with_it(driver: Path) -> None:
    """The lost one has no figures and says why; the other goes on; the library is reopened at most once a minute."""
    result = run("one_lost", driver)
    whole, broken, healed = result["said"]
    assert [reading["free"] for reading in whole] == [9 * GIB, 9 * GIB]
    assert [reading["free"] for reading in broken] == [9 * GIB, None]
    assert broken[1]["missing"] == {"memory": "gpu_lost", "processes": "gpu_lost"}
    assert [reading["free"] for reading in healed] == [9 * GIB, 9 * GIB]
    assert result["attempts"] <= 10
    assert result["references"] == 1


def test_a_refused_gpu_is_read_by_its_mig_slice(driver: Path) -> None:
    """In a MIG container of an H200 the parent is refused; the 1g.35gb slice's own 32.5 GiB are the total."""
    reading = only(run("mig", driver))
    assert (reading["uuid"], reading["parent_uuid"], reading["gpu"]) == ("MIG-11111111", "GPU-00000000", "0:0")
    assert reading["total"] == 32.5 * GIB


def test_slices_are_read_apart_and_chosen_by_uuid(driver: Path) -> None:
    """Each slice of a GPU has its own figures and label, and a MIG UUID selects one."""
    both, chosen = run("two_slices", driver)
    assert [(reading["gpu"], reading["used"]) for reading in both] == [("0:0", 10 * GIB), ("0:1", 30 * GIB)]
    assert only(chosen)["uuid"] == "MIG-1"


def test_memory_is_attributed_where_the_process_can_be_checked(driver: Path) -> None:
    """The server's, a visible neighbour's, and the rest unattributed; a size that the driver hides is not counted."""
    reading = only(run("attribution", driver))
    assert (reading["this_process"], reading["other_processes"]) == (60 * GIB, 4 * GIB)
    assert reading["unattributed"] == 6 * GIB


def test_pids_of_another_namespace_are_never_guessed(driver: Path) -> None:
    """PID 28290 that is not in /proc leaves all memory unattributed, and says that the namespace is why."""
    reading = only(run("foreign_pids", driver))
    assert (reading["this_process"], reading["other_processes"]) == (None, None)
    assert reading["unattributed"] == 70 * GIB
    assert reading["missing"] == {"processes": "pid_namespace"}


@pytest.mark.parametrize(("code", "reason"), [(3, "not_supported"), (4, "no_permission"), (999, "unknown")])
def test_a_failing_process_list_costs_only_itself(driver: Path, code: int, reason: str) -> None:
    """Memory is read all the same, unattributed."""
    reading = only(run("process_code", driver, code))
    assert reading["missing"] == {"processes": reason}
    assert reading["unattributed"] == reading["used"] == 70 * GIB


def test_a_driver_without_gpus_is_told(driver: Path) -> None:
    """NVIDIA_VISIBLE_DEVICES=void leaves a driver without devices: a reason, and NVML is given back."""
    assert run("no_devices", driver) == {"said": "no_devices", "references": 0}


def test_a_hundred_thousand_ticks_leak_nothing(driver: Path) -> None:
    """With a hundred losses on the way: one reference, no descriptor, and no memory worth the name."""
    result = run("many_ticks", driver)
    assert (result["references"], result["closed"]) == (1, 0)
    assert result["after"]["descriptors"] == result["before"]["descriptors"]
    assert result["after"]["kib"] - result["before"]["kib"] < 512
    assert result["down"] > 99


def test_only_one_module_imports_pynvml() -> None:
    """Everything else knows GPUs through the Device protocol."""
    importing = {
        path.name
        for path in EXPORTER.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.strip().startswith(("import pynvml", "from pynvml"))
    }
    assert importing == {"nvml.py"}
