"""A day at one reading a second in virtual time: does anything grow, drift, or get lost?

    python -m bench.soak [--hours 24] [--seed 0] [--tracemalloc] [--output bench/soak.json]

The daemon's own parts do what they do in `vllm-headroom run`: source, parser, arithmetic, forecast, scorecard, pages;
clock, network, GPU and container are those of `bench.soak_world`. One line an hour, then the verdict.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import exporter
from bench.census import Counting, Growth, Held, census, counted_apart
from bench.soak_report import Sample, resident_mib, verdict
from bench.soak_world import HOUR, Wire, World
from exporter.assembly import build_monitor
from exporter.heap import give_back
from exporter.history import History
from exporter.memory import DeviceWatch
from exporter.pace import Pace, SteadyClock
from exporter.routes import Routes
from exporter.server import Request
from exporter.settings import load
from exporter.sources.gpus import GpuSource

NOT_OURS = {
    "World",
    "Engine",
    "Buckets",
    "Job",
    "Wire",
    "Machine",
    "FakeLibrary",
    "FakeDevice",
    "Soak",
    "Growth",
    "Sample",
}
"""The world hangs below the transport and the clocks."""
SETTLED_SAMPLES = 2
"""Arrivals are remembered for two hours: until then that list grows."""
SCRAPE_TICKS, LOOK_TICKS = 15, 120
FORMS = (
    {"accept": "text/plain"},
    {"accept": "application/openmetrics-text; version=1.0.0"},
    {"accept": "text/plain", "accept-encoding": "gzip"},
)


class Soak:
    """The daemon's parts in a world; `run` goes on hour by hour."""

    def __init__(
        self, directory: Path, seed: int = 0, interval: float = 1.0, count: Counting = lambda census: census()
    ) -> None:
        flags = {
            "vllm_url": "http://127.0.0.1:8000",
            "poll_interval_seconds": str(interval),
            "architecture_file": str(files("exporter.demo").joinpath("model")),
        }
        self.world = World(directory, seed)
        places = {"proc_dir": str(self.world.proc), "cgroup_dir": str(self.world.cgroup)}
        settings = load(flags | places)
        clock = SteadyClock(self.world.monotonic)
        self.monitor = build_monitor(
            settings,
            clock,
            self.world.calendar,
            devices=DeviceWatch(GpuSource(self.world.library)),
            transport=Wire(self.world, settings.vllm_timeout_seconds),
        )
        self.history = History()
        self.routes = Routes(lambda: self.monitor.latest, self.history, clock, 8.0)
        self.faults: list[str] = []
        """What was not as it must be."""
        self.samples: list[Sample] = []
        self.growth = Growth()
        """Of what is held, from the end of the second hour on."""
        self.held: dict[str, Held] = {}
        """What is held by whom, as last sampled."""
        self.ticks = self.late = 0
        self.most_series = self.page_series = 0
        self._clock = clock
        self._count = count
        self.interval = interval
        self._pace = Pace(interval, clock())
        self._begun = self._pace.due
        self._scored: dict[tuple[str, str], int] = {}
        self._cpu = 0.0

    def run(self, seconds: float) -> None:
        """Tick until so many seconds of the world have passed, and take a sample then."""
        until = self.world.now + seconds
        before, self._cpu, self.most_series = self.ticks, 0.0, 0
        while self.world.now < until:
            self._tick()
        self._sample((self._cpu / max(1, self.ticks - before)) * 1000)

    def verdict(self) -> Iterator[str]:
        """What is not as it must be, or else nothing."""
        return verdict(self.samples, self.faults, self.growth)

    def look(self) -> None:
        """Somebody opens the status page."""
        for path in ("/", "/api/v1/status"):
            self._ask(path, {})

    def _tick(self) -> None:
        self.world.pass_time()
        begun = time.thread_time()
        snapshot = self.monitor.tick()
        self.history.add(snapshot)
        self._cpu += time.thread_time() - begun
        self.ticks += 1
        self._check()
        if self.ticks % SCRAPE_TICKS == 0:
            self._scrape(self.ticks // SCRAPE_TICKS)
        if self.ticks % LOOK_TICKS == 0:
            self.look()
        missed = self._pace.due
        self.world.now += self._pace.seconds(self._clock())
        self.late += self._pace.due - missed > self.interval

    def _check(self) -> None:
        """The grid holds, and no counter is lost."""
        snapshot = self.monitor.latest
        assert snapshot is not None
        steps = (self._pace.due - self._begun) / self.interval
        if abs(steps - round(steps)) > 1e-6:
            self._fault(f"the tick of {self._pace.due} is off its grid")
        if snapshot.ticks != self.ticks:
            self._fault(f"{snapshot.ticks} ticks are counted of {self.ticks}")
        for status in snapshot.engines:
            key = status.reading.model_name, status.reading.engine
            scored = sum(status.assessment.forecasts.values())
            if scored < self._scored.get(key, 0) and self.world.outage_seconds < HOUR / 4:
                self._fault(f"forecasts of {key} fell from {self._scored[key]} to {scored}")
            self._scored[key] = scored
        present = {(status.reading.model_name, status.reading.engine) for status in snapshot.engines}
        self._scored = {key: count for key, count in self._scored.items() if key in present}
        up = next(health for health in snapshot.sources if health.source == "vllm").up
        if not up and any(status.assessment.state != "unknown" for status in snapshot.engines):
            self._fault("an engine is told of while the page is not there")
        host = snapshot.host
        if host is None or (host.reading.oom_kills, host.reading.server_starts) != (
            self.world.kills,
            self.world.starts,
        ):
            self._fault(f"of {self.world.kills} kills and {self.world.starts} starts the host source tells otherwise")

    def _scrape(self, number: int) -> None:
        body = self._ask("/metrics", FORMS[number % len(FORMS)])
        if number % len(FORMS) == 0:
            self.page_series = sum(not line.startswith(b"#") for line in body.splitlines())
            self.most_series = max(self.most_series, self.page_series)

    def _ask(self, path: str, headers: dict[str, str]) -> bytes:
        response = self.routes(Request("GET", path, "", headers))
        if response.status != 200:
            self._fault(f"{path} answers {response.status}")
        return response.body

    def _fault(self, what: str) -> None:
        if len(self.faults) < 100:
            self.faults.append(f"at {self.world.now:.0f} s: {what}")

    def _sample(self, tick_cpu_ms: float) -> None:
        self._scrape(0)
        give_back()  # as the daemon does every hour, at a moment of its own
        resident = resident_mib()
        held = self._count(self._census)
        latest = self.monitor.latest
        self.held = held
        if len(self.samples) >= SETTLED_SAMPLES:
            self.growth.add(held)
        self.samples.append(
            Sample(
                hour=round(self.world.now / HOUR, 2),
                resident_mib=resident,
                blocks=sys.getallocatedblocks(),
                traced_mib=round(tracemalloc.get_traced_memory()[0] / 2**20, 2),
                held_mib=round(sum(one.bytes for one in held.values()) / 2**20, 3),
                series=self.page_series,
                most_series=self.most_series,
                engines=len(latest.engines) if latest else 0,
                tick_cpu_ms=round(tick_cpu_ms, 3),
            )
        )

    def _census(self) -> dict[str, Held]:
        """What is held by whom."""
        roots = {"monitor": self.monitor, "history": self.history, "routes": self.routes}
        held = census(roots, ("exporter", "bench", "tests"))
        return {owner: one for owner, one in held.items() if owner.partition(".")[0] not in NOT_OURS}


def main(argv: Sequence[str] | None = None) -> int:
    """Soak, print, and write the figures; 1 when something grows, drifts or is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between readings")
    parser.add_argument("--tracemalloc", action="store_true", help="trace every allocation; twice as slow")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args(argv)
    if arguments.tracemalloc:
        tracemalloc.start()
    begun = time.process_time()
    # The container's files are written ten thousand times: in memory, where there is a place for it.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        soak = Soak(Path(directory), arguments.seed, arguments.interval, counted_apart)
        for hour in range(arguments.hours):
            soak.run((hour + 1) * HOUR - soak.world.now)
            print(json.dumps(asdict(soak.samples[-1])), flush=True)
            if arguments.output:
                figures = told(soak, round(time.process_time() - begun))
                arguments.output.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
        soak.monitor.close()
    wrong = list(soak.verdict())
    print("\n".join(wrong) or "nothing grows, drifts or is lost")
    return 1 if wrong else 0


def told(soak: Soak, cpu_seconds: int) -> dict[str, Any]:
    """The figures so far, as docs/faults.md shows them."""
    return {
        "command": f"python -m bench.soak --hours {len(soak.samples)} --interval {soak.interval:g}",
        "interval": soak.interval,
        "hours": len(soak.samples),
        "ticks": soak.ticks,
        "late_ticks": soak.late,
        "cpu_seconds": cpu_seconds,
        "python": platform.python_version(),
        "version": exporter.__version__,
        "kills": soak.world.kills,
        "starts": soak.world.starts,
        "wrong": list(soak.verdict()),
        "samples": [asdict(sample) for sample in soak.samples],
    }


if __name__ == "__main__":
    sys.exit(main())
