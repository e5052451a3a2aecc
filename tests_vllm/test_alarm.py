"""The alarm on a live engine: quiet while it is calm, on before the first preemption, and naming what drives it."""

import multiprocessing
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pytest

from tests_vllm.exporter import Exporter, Reading
from tests_vllm.findings import Findings
from tests_vllm.load import Load
from tests_vllm.paced import BLOCK_SIZE, PacedServer
from tests_vllm.traffic import USUAL_OUTPUT, Limit, Traffic, burst, crowd, long_contexts, playing, prefill_spike

BLOCKS = 1024
PACE = 0.1
RATE = 1.0
"""Arrivals a second that hold about two fifths of the pool."""
ALREADY = round(RATE * USUAL_OUTPUT * PACE)
SETTLE_SECONDS = 3.0
CALM_SECONDS = 90.0
CALM_SHARE = 0.75
"""Of the pool, that the calm's requests would hold if all of them were at their ends at once."""
RAMP_SECONDS = 150.0
AFTER_SECONDS = 6.0
"""How long a run goes on after its first preemption: the driver is told while it is being exhausted, too."""

DOUBLINGS = (10, 12, 14, 16, 18, 20, 22, 24, 27, 30)
RAMPS: dict[str, Callable[[float, float], Traffic]] = {
    f"arrivals double every {seconds} s": partial(crowd, doubling=seconds) for seconds in DOUBLINGS
}
DRIVERS: dict[str, Callable[[float, float], Traffic]] = {
    "long_context": long_contexts,
    "burst_concurrency": burst,
    "prefill_spike": prefill_spike,
}
LOADS = DRIVERS | RAMPS
ORDER = tuple(LOADS)
SIDE_BY_SIDE = 4


@dataclass(frozen=True, slots=True)
class Run:
    """One calm phase and the ramp after it. Seconds are since the ramp began; `None`: it did not come."""

    ramp: str
    calm_usage: float
    calm_peak: float
    calm_preemptions: int
    calm_alarm: bool
    alarm: float | None
    first_preemption: float | None
    drivers: dict[str, int]
    """How many readings named which driver, from the alarm or the first preemption on."""

    @property
    def lead(self) -> float | None:
        """Seconds from the alarm to the first preemption; negative when it came late, `None` when one is missing."""
        if self.alarm is None or self.first_preemption is None:
            return None
        return self.first_preemption - self.alarm

    @property
    def named(self) -> str:
        """The driver named most often."""
        return max(self.drivers, key=lambda name: self.drivers[name], default="none")


@pytest.fixture(scope="module")
def runs(model: Path, place: Path) -> list[Run]:
    """Every run, on several servers side by side, each with what drives and watches it in a process of its own."""
    shares = [(number, model, place) for number in range(SIDE_BY_SIDE)]
    with multiprocessing.get_context("spawn").Pool(SIDE_BY_SIDE, initializer=end_on_term) as pool:
        done = pool.starmap(share, shares, chunksize=1)
        pool.close()
        pool.join()
    return [run for runs in done for run in runs]


def end_on_term() -> None:
    """The pool ends its processes by SIGTERM; what they started must end with them."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def share(number: int, model: Path, place: Path) -> list[Run]:
    """One server's part of the runs."""
    flags = ("--num-gpu-blocks-override", str(BLOCKS + 1))
    mine = range(number, len(ORDER), SIDE_BY_SIDE)
    with PacedServer(model, place, f"ramp-{number}", *flags, pace=PACE) as server:
        return [one_run(server, ORDER[k], k, place / f"ramp-{k}.exporter") for k in mine]


def one_run(server: PacedServer, ramp: str, seed: int, log: Path) -> Run:
    """Calm for a while, then ever more, until a little after the first preemption."""
    limit = Limit(CALM_SECONDS, round(CALM_SHARE * BLOCKS), BLOCK_SIZE)
    traffic = LOADS[ramp](RATE, CALM_SECONDS)
    with Load(server, seed) as load, playing(traffic, load, seed, limit, ALREADY) as begun:
        turn = begun + CALM_SECONDS
        time.sleep(SETTLE_SECONDS)
        with Exporter(server.url, log) as exporter:
            time.sleep(max(0.0, turn - time.time()))
            first = None
            while time.time() < turn + RAMP_SECONDS and (first is None or time.time() < first + AFTER_SECONDS):
                time.sleep(1.0)
                first = first or next((event.at for event in server.events(turn)), None)
            readings = exporter.since(begun)
    calm = [reading for reading in readings if reading.ended <= turn]
    wild = [reading for reading in readings if reading.ended > turn]
    usage = [reading.value("kv_used_ratio") or 0.0 for reading in calm]
    alarm = next((reading.ended for reading in wild if reading.predicted), None)
    named_from = min(at for at in (alarm, first, time.time()) if at is not None)
    return Run(
        ramp=ramp,
        calm_usage=sum(usage) / len(usage),
        calm_peak=max(usage),
        calm_preemptions=sum(event.at < turn for event in server.events(begun)),
        calm_alarm=any(reading.predicted for reading in calm),
        alarm=None if alarm is None else alarm - turn,
        first_preemption=None if first is None else first - turn,
        drivers=_drivers([reading for reading in wild if reading.ended >= named_from]),
    )


def _drivers(readings: list[Reading]) -> dict[str, int]:
    named = [reading.driver for reading in readings if reading.driver]
    return {name: named.count(name) for name in sorted(set(named))}


def test_calm_runs_are_quiet(runs: list[Run], findings: Findings) -> None:
    """In every calm run, from the exporter's start on, the alarm never goes on."""
    findings.note("calm", runs=len(runs), quiet=sum(not run.calm_alarm for run in runs))
    assert [run.calm_preemptions for run in runs] == [0] * len(runs), "the calm was meant to fit"
    assert [run.ramp for run in runs if run.calm_alarm] == []


def test_the_alarm_is_on_before_the_first_preemption(runs: list[Run], findings: Findings) -> None:
    """In at least eight of ten ramps of arrivals the alarm is on before the first request is preempted."""
    findings.note("ramps", runs=[asdict(run) | {"lead": run.lead, "named": run.named} for run in runs])
    assert all(run.first_preemption is not None for run in runs), "every ramp was meant to exhaust the pool"
    leads = {run.ramp: run.lead for run in runs if run.ramp in RAMPS}
    assert sum(lead is not None and lead > 0 for lead in leads.values()) >= 8, leads


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_driver_is_named(runs: list[Run], driver: str) -> None:
    """Longer contexts, more requests at once and spikes of prefill are told apart."""
    (run,) = (run for run in runs if run.ramp == driver)
    assert run.named == driver, run.drivers
