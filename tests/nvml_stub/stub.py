"""Compile the stub library, drive it, and run a scenario beside it in a process of its own.

pynvml keeps the library it loaded for the life of the process, so every scenario gets a fresh one.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.tools import tool

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("libnvidia_ml_stub.c")
SONAME = "libnvidia-ml.so.1"
GIB = 2**30
ANY = 0xFFFFFFFF
NOT_AVAILABLE = 2**64 - 1


def build(directory: Path, *defines: str) -> Path:
    """Compile the stub into `directory`; returns the directory, for LD_LIBRARY_PATH."""
    directory.mkdir(parents=True, exist_ok=True)
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{SONAME}"]
    target = directory / SONAME
    command = [
        tool("gcc", "gcc and libc6-dev"),
        *flags,
        *(f"-D{name}" for name in defines),
        "-o",
        str(target),
        str(SOURCE),
    ]
    subprocess.run(command, check=True)
    return directory


def without_driver(directory: Path) -> Path:
    """A library path in which loading the library fails, even on a machine that has a driver."""
    (directory / SONAME).write_text("no library\n" * 100)
    return directory


def run(scenario: str, libraries: Path, code: int = 0) -> Any:
    """The result of a function of `scenarios.py`, run with the real pynvml and the library in `libraries`."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "CODE": str(code)}
    command = [sys.executable, "-W", "error", "-m", "tests.nvml_stub.scenarios", scenario]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Stub:
    """The stub that this process has loaded, as the scenario sets it up."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(SONAME)

    def devices(self, count: int) -> None:
        self._library.stub_devices(count)

    def identity(self, slot: int, uuid: str, name: str = "NVIDIA Stub", minor: int = 0) -> None:
        self._library.stub_identity(slot, uuid.encode(), name.encode(), minor)

    def memory(self, slot: int, total: int, used: int, reserved: int = 0, free: int | None = None) -> None:
        left = total - used - reserved if free is None else free
        self._library.stub_memory(slot, *(ctypes.c_ulonglong(size) for size in (total, used, left, reserved)))

    def mig(self, slot: int, slices: int) -> None:
        self._library.stub_mig(slot, 1, slices)

    def forget_processes(self, slot: int) -> None:
        self._library.stub_forget_processes(slot)

    def process(self, slot: int, pid: int, used: int) -> None:
        self._library.stub_process(slot, pid, ctypes.c_ulonglong(used))

    def fault(self, function: str, code: int, slot: int = ANY, after: int = 0) -> None:
        self._library.stub_fault(function.encode(), ctypes.c_uint(slot), code, ctypes.c_uint(after))

    def gpu(self, slot: int = 0, total: int = 80 * GIB, used: int = 70 * GIB, reserved: int = GIB) -> None:
        """An ordinary card."""
        self.identity(slot, f"GPU-{slot:08d}", minor=slot)
        self.memory(slot, total, used, reserved)

    @property
    def references(self) -> int:
        return int(self._library.stub_references())

    @property
    def inits(self) -> int:
        return int(self._library.stub_inits())

    @property
    def calls(self) -> int:
        return int(self._library.stub_calls())


def slice_slot(gpu: int, index: int) -> int:
    """The stub's slot of a MIG slice."""
    return 8 + gpu * 8 + index
