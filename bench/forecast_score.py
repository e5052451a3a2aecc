"""Score the forecast on recordings, beside today's alerts.

    python -m bench.forecast_score RECORDINGS [--apart NAME]... [--interval S] [--jobs N] [--keep FILE]

Prints, in Markdown: every recording's figures and CPU time, the pooled ones of the forecast and of the thresholds
(recordings set apart left out), the reliability of the probability at all times, during exhaustion and during recovery,
and the error of the time to exhaustion. The figures are those defined in `exporter.backtest.scoring`. RECORDINGS is a
directory, or the FILE that an earlier run has kept of one: replaying is what takes the time.
"""

import argparse
import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.forecast_trace import Said, Trace, keep, traces, verdicts
from exporter.backtest.replaying import FORECAST
from exporter.backtest.report import shown
from exporter.backtest.scoring import Counts, Point, Score, count, onsets_of, score
from exporter.backtest.thresholds import DETECTORS
from exporter.reading import EngineReading

COLUMNS = (
    "onsets", "skill", "auc", "w15_at_1", "w15_at_3", "recall", "warned15", "lead_p50", "precision", "calm", "flaps",
)  # fmt: skip
HORIZON = 60.0
LINEAR = "predict_linear over 60 s"
PHASES = {"at all times": 0.0, "within 60 s after a preemption": 60.0, "60 to 300 s after a preemption": 300.0}


@dataclass(frozen=True, slots=True)
class Judged:
    """One recording's outcome."""

    name: str
    milliseconds: float
    """CPU time per reading, the recording's parsing included."""
    counts: dict[str, Counts]
    bins: dict[str, list[list[float]]]
    errors: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, help="a directory, or what --keep has kept of it")
    parser.add_argument("--apart", action="append", default=[], help="a recording that is not pooled")
    parser.add_argument("--interval", type=float, default=None)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=None, metavar="FILE", help="keep what was seen")
    args = parser.parse_args()
    seen = traces(args.recordings, interval=args.interval, jobs=args.jobs)
    if args.keep is not None:
        keep(seen, args.keep)
    every = [judged(trace, seconds_of(trace, args.interval)) for trace in seen]
    print("| recording | ms/reading | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for one in every:
        print(f"| {one.name} | {one.milliseconds:.2f} | {row(score(one.counts[FORECAST]))} |")
    together = [one for one in every if one.name not in args.apart]
    for name in (*DETECTORS, LINEAR, FORECAST):
        told = score(sum((one.counts[name] for one in together), Counts()))
        print(f"| **{name}** | | {row(told, digits=3)} |")
    for one in every:
        if one.name in args.apart:
            for name, counts in one.counts.items():
                print(f"| {one.name}: {name} | | {row(score(counts))} |")
    for phase in PHASES:
        print(f"\n{phase}\n\n| said | happened | seconds |\n|---|---|---|")
        for said, came, n in added(one.bins[phase] for one in together):
            if n:
                print(f"| {said / n:.2f} | {came / n:.2f} | {n:.0f} |")
    errors = sorted(error for one in together for error in one.errors)
    if errors:
        print(f"\ntime to exhaustion: median absolute error {errors[len(errors) // 2]:.0%} of {len(errors)} forecasts")


def seconds_of(trace: Trace, interval: float | None) -> list[float]:
    """The recorded seconds: those of the readings, or all of them where only some were read."""
    if interval is None:
        return [float(at) for at in trace.times]
    return [float(at) for at in np.arange(trace.times[0], trace.times[-1] + 0.5)]


def judged(trace: Trace, seconds: Sequence[float]) -> Judged:
    """Score one recording, at every one of its recorded seconds."""
    readings = [EngineReading(t, "", "", kv_usage=u) for t, u in zip(trace.times.tolist(), trace.usage, strict=True)]
    said, events = verdicts(trace), list(trace.events)
    series = held([(one.time, one.probability, one.alarm) for one in said], seconds)
    counts = {name: count(held(detect(readings), seconds), events) for name, detect in DETECTORS.items()}
    counts[LINEAR] = count(held(predict_linear(readings), seconds), events)
    counts[FORECAST] = count(series, events)
    bins = {phase: reliability(series, events, after) for phase, after in PHASES.items()}
    return Judged(trace.name, trace.milliseconds, counts, bins, time_errors(said, events))


def predict_linear(readings: list[EngineReading], window: int = 60) -> list[Point]:
    """The line through the last 60 readings of usage, a minute on; above 1 it is an alarm."""
    usages, found = [reading.kv_usage or 0.0 for reading in readings], []
    for k, reading in enumerate(readings):
        last = usages[max(0, k - window + 1) : k + 1]
        middle, mean = (len(last) - 1) / 2, sum(last) / len(last)
        spread = sum((n - middle) ** 2 for n in range(len(last))) or 1.0
        slope = sum((n - middle) * (usage - mean) for n, usage in enumerate(last)) / spread
        ahead = mean + slope * (len(last) - 1 - middle) + slope * HORIZON
        found.append((reading.time, ahead, ahead > 1.0))
    return found


def held(series: list[Point], seconds: Sequence[float]) -> list[Point]:
    """The last value at every recorded second."""
    found, k, last = [], 0, (0.0, False)
    for at in seconds:
        while k < len(series) and series[k][0] <= at + 1e-6:
            last, k = (series[k][1], series[k][2]), k + 1
        found.append((at, *last))
    return found


def row(told: Score, digits: int = 2) -> str:
    cells = [getattr(told, column) for column in COLUMNS]
    return " | ".join(shown(cell) if digits == 2 or cell is None else f"{cell:.{digits}g}" for cell in cells)


def reliability(series: list[Point], events: list[float], after: float) -> list[list[float]]:
    """Ten bins of (sum said, sum happened, number), of forecasts whose outcome is recorded, in one of the phases."""
    bins = [[0.0, 0.0, 0.0] for _ in range(10)]
    for at, probability, _ in series:
        if at > series[-1][0] - HORIZON:
            break
        following = bisect.bisect_right(events, at)
        since = at - events[following - 1] if following else float("inf")
        if after and not (since <= HORIZON if after == HORIZON else HORIZON < since <= after):
            continue
        place = bins[min(9, int(probability * 10))]
        place[0] += probability
        place[1] += following < len(events) and events[following] <= at + HORIZON
        place[2] += 1
    return bins


def added(parts: Iterable[list[list[float]]]) -> list[list[float]]:
    """Bin by bin."""
    return [[sum(cells) for cells in zip(*places, strict=True)] for places in zip(*parts, strict=True)]


def time_errors(said: list[Said], events: list[float]) -> list[float]:
    """Relative errors of the time to exhaustion in the minute before each onset, its last two seconds left out."""
    return [
        abs(one.seconds - (onset - one.time)) / (onset - one.time)
        for onset in onsets_of(events)
        for one in said
        if one.seconds is not None and onset - HORIZON <= one.time <= onset - 2.0
    ]


if __name__ == "__main__":
    main()
