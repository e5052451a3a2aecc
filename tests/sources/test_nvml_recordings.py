"""What real NVMLs said, replayed; and the recorder itself, on the stub."""

import os
import subprocess
import sys
from pathlib import Path

from exporter.reading import DeviceReading
from exporter.sources.gpus import GpuSource
from tests.nvml_stub.stub import GIB, ROOT, build, without_driver
from tests.sources.recorded import Recording

RECORDINGS = Path(__file__).parents[1] / "data" / "nvml"


def check(reading: DeviceReading) -> None:
    """What any reading must be, whatever the GPU."""
    assert reading.uuid
    if reading.total is None or reading.free is None:
        assert "memory" in reading.missing
        return
    assert 0 <= reading.free <= reading.total
    if not reading.unified:
        assert reading.used is not None
        assert reading.used + (reading.reserved or 0) + reading.free <= reading.total * 1.01
        shares = (reading.this_process, reading.other_processes, reading.unattributed)
        assert sum(share or 0 for share in shares) <= reading.used + 2**20


def record(directory: Path, *defines: str) -> Recording:
    """Record the stub as a user records a GPU."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(build(directory, "WITH_CARD", *defines))}
    target = directory / "recording.json"
    command = [sys.executable, "-m", "bench.record_nvml", "--out", str(target), "--calls", "2"]
    subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    return Recording(target)


def test_every_recording_is_read() -> None:
    """Whatever GPU was recorded, its replay gives a reading that makes sense, or says what is missing."""
    for path in sorted(RECORDINGS.glob("*.json")):
        for reading in GpuSource(Recording(path)).read(0.0):
            check(reading)


def test_the_recorder_keeps_what_nvml_says(tmp_path: Path) -> None:
    """A recorded card replays to the very reading that the card gives, and driver and timings are kept."""
    recording = record(tmp_path)
    (reading,) = GpuSource(recording).read(0.0)
    check(reading)
    assert (reading.total, reading.used, reading.free, reading.reserved) == (80 * GIB, 70 * GIB, 9 * GIB, GIB)
    assert reading.name == "NVIDIA Stub"
    assert recording.document["driver"]["value"] == "580.65.06"
    assert recording.document["tick"]["median_ms"] > 0
    assert recording.document["devices"][0]["memory_v1"]["value"]["used"] == 71 * GIB


def test_the_recorder_keeps_refusals(tmp_path: Path) -> None:
    """An old driver's missing functions are recorded as the codes they are, and replay to version 1."""
    recording = record(tmp_path, "OLD_DRIVER", "NO_MIG")
    (reading,) = GpuSource(recording).read(0.0)
    assert (reading.used, reading.reserved) == (71 * GIB, None)
    assert recording.document["devices"][0]["memory_v2"] == {"error": 13}


def test_the_recorder_without_a_driver_says_so(tmp_path: Path) -> None:
    """One line, exit code 1, no file."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(without_driver(tmp_path))}
    command = [sys.executable, "-m", "bench.record_nvml", "--out", str(tmp_path / "x.json")]
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Is this a machine with an NVIDIA driver?" in done.stderr
    assert not (tmp_path / "x.json").exists()
