"""A recorded run of a real server under known requests, and the embedded engine's account of the same run.

A real server's passes take as long as the machine lets them, so the two are compared pass by pass: engine time is the
number of forward passes. When a request reached the engine is told by the page itself: it is then that running, waiting
and finished together grow; within the fraction of a second between two readings, the time it was sent decides.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean

from exporter.demo.engine import DemoEngine, Step
from exporter.demo.scheduler import Request
from tests.support.traces import DATA, config, read_lines


@dataclass(frozen=True, slots=True)
class PageRow:
    """One reading of the real page; counters are since the start of the run."""

    time: float
    usage: float
    running: int
    waiting: int
    preemptions: int
    passes: int
    finished: int

    @property
    def arrived(self) -> int:
        """Requests that the engine has seen so far."""
        return self.running + self.waiting + self.finished


@dataclass(frozen=True, slots=True)
class Difference:
    """Embedded minus real: means of absolute differences over the readings, and totals of both at the end."""

    usage: float
    running: float
    waiting: float
    passes: tuple[int, int]
    preemptions: tuple[int, int]


RUNS = tuple(sorted(DATA.glob("real-server*.jsonl.gz")))
"""Each a run with requests of its own."""


def recorded_run(path: Path) -> tuple[DemoEngine, list[PageRow]]:
    """The embedded engine fed with the run's requests, and what the real page showed."""
    first, *lines = read_lines(path)
    rows = [PageRow(*line) for line in lines if isinstance(line, list)]
    sent = [line for line in lines if isinstance(line, dict)]
    requests = [
        Request(arrival, line["prompt_tokens"], line["output_tokens"])
        for line, arrival in zip(sent, arrivals([line["sent"] for line in sent], rows), strict=True)
    ]
    return DemoEngine(config(first["engine"]), requests), rows


def arrivals(sent: Sequence[float], rows: Sequence[PageRow]) -> list[float]:
    """When each request reached the engine, in forward passes."""
    moments: list[float] = []
    for number, time in enumerate(sent):
        after = next(index for index, row in enumerate(rows) if row.arrived > number)
        left, right = rows[max(0, after - 1)], rows[after]
        share = (time - left.time) / (right.time - left.time) if right.time > left.time else 1.0
        moments.append(left.passes + min(1.0, max(0.0, share)) * (right.passes - left.passes))
    return list(accumulate(moments, max))


def compare(engine: DemoEngine, rows: Sequence[PageRow]) -> Difference:
    """Run the embedded engine to the end and hold it against every reading."""
    steps = list(engine.steps(until=1e9))
    ends = [step.end for step in steps]
    usable = engine.config.limits.num_gpu_blocks - 1
    pairs: list[tuple[Step, PageRow]] = [
        (steps[bisect_right(ends, row.passes) - 1], row) for row in rows if row.passes >= ends[0]
    ]
    return Difference(
        usage=fmean(abs(step.used_blocks / usable - row.usage) for step, row in pairs),
        running=fmean(abs(step.running - row.running) for step, row in pairs),
        waiting=fmean(abs(step.waiting - row.waiting) for step, row in pairs),
        passes=(len(steps), rows[-1].passes),
        preemptions=(engine.preempted, rows[-1].preemptions),
    )
