"""Runs a target: guided by coverage where atheris is installed, else by chance alone; one process a target."""

import importlib.util
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.fuzz.mutation import mutated
from bench.fuzz.target import Target, target

SECONDS_AN_INPUT = 5
MEMORY_MIB = 512
FOREVER = sys.maxsize
_UNCAUGHT = "=== Uncaught Python exception"


@dataclass(frozen=True)
class Outcome:
    """What a run came to. `fault` is where the input lies that broke a promise, `None` if none did."""

    name: str
    engine: str
    inputs: int
    seconds: float
    slowest_seconds: float
    peak_mib: int
    fault: Path | None = None
    story: str = ""


def guided() -> bool:
    """Whether atheris is here."""
    return importlib.util.find_spec("atheris") is not None


def run(name: str, seconds: float, inputs: int, seed: int, work: Path) -> Outcome:
    """Fuzz one target in a process of its own; new inputs are kept in `work`/NAME, one that fails in `work`."""
    kept = work / name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as seeds:
        command = [sys.executable, "-m", "bench.fuzz.worker", name, "--work", str(kept), "--faults", str(work)]
        command += ["--seconds", str(seconds), "--inputs", str(inputs), "--seed", str(seed), "--seeds", seeds]
        begun = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        # Without libFuzzer's running account of what it found new.
        told = "\n".join(line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("#"))
    found = re.search(r"Test unit written to (\S+)", told)
    slowest = _number(r"slowest_unit_time_sec:\s*([\d.]+)", told)
    return Outcome(
        name=name,
        engine="atheris" if guided() else "chance",
        inputs=int(_number(r"number_of_executed_units:\s*(\d+)", told)),
        seconds=time.monotonic() - begun,
        slowest_seconds=slowest,
        peak_mib=int(_number(r"peak_rss_mb:\s*(\d+)", told)),
        fault=Path(found[1]) if found else None,
        story="" if done.returncode == 0 else told[max(0, told.find(_UNCAUGHT)) :][:6_000],
    )


def _number(pattern: str, text: str) -> float:
    found = re.findall(pattern, text)
    return float(found[-1]) if found else 0.0


def by_chance(aim: Target, seconds: float, inputs: int, seed: int, faults: Path) -> int:
    """Inputs made of seeds and corpus by chance; speaks as libFuzzer does. Exit code 77 where a promise is broken."""
    chance = Random(seed)
    known = [*aim.seeds(), *(path.read_bytes() for path in aim.corpus)]
    begun, count, slowest = time.monotonic(), 0, 0.0
    while count < inputs and time.monotonic() - begun < seconds:
        data = made(aim, chance.choice(known), chance)
        started = time.thread_time()
        try:
            aim.holds(data)
        except BaseException:
            path = faults / f"crash-{aim.name}-{seed}-{count}"
            path.write_bytes(data)
            print(f"Test unit written to {path}", flush=True)
            raise
        slowest = max(slowest, time.thread_time() - started)
        count += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"stat::number_of_executed_units: {count}\nstat::slowest_unit_time_sec: {slowest:.3f}")
    print(f"stat::peak_rss_mb: {peak}")
    return 0


def made(aim: Target, data: bytes, chance: Random) -> bytes:
    """An input made of another, within the target's own grammar or across it."""
    if aim.mutate is not None and chance.random() < 0.6:
        return aim.mutate(data, chance)[: aim.longest]
    return mutated(data, chance, aim.tokens, aim.longest)


def load(name: str, seeds: Path) -> Target:
    """The target, with its seeds written where libFuzzer looks for them."""
    aim = target(name)
    for number, data in enumerate(aim.seeds()):
        (seeds / f"seed-{number}").write_bytes(data)
    return aim
