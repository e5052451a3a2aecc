"""Score the forecast on recordings, beside today's alerts.

    python -m bench.forecast_score RECORDINGS_DIR [--interval S] [--seed N]

Prints, in Markdown: every recording's figures, the pooled ones of the forecast and of the thresholds, the
reliability of the probability, and the error of the time to exhaustion. The figures are those defined in
`exporter.backtest.scoring`.
"""

import argparse
import time
from pathlib import Path

from exporter.backtest.replaying import FORECAST
from exporter.backtest.report import shown
from exporter.backtest.scoring import Counts, Point, Score, count, onsets_of, score
from exporter.backtest.thresholds import DETECTORS
from exporter.forecast.assessment import Assessment
from exporter.reading import EngineReading
from exporter.replay import assessments
from exporter.sources.recording import Recording

COLUMNS = (
    "onsets", "skill", "auc", "w15_at_1", "w15_at_3", "recall", "warned15", "lead_p50", "precision", "calm", "flaps",
)  # fmt: skip
HORIZON = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--interval", type=float, default=None)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    totals: dict[str, Counts] = {}
    bins = [[0.0, 0.0, 0] for _ in range(10)]
    errors: list[float] = []
    print("| recording | readings/s | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for path in sorted(args.recordings.glob("*.jsonl.gz")):
        recording = Recording(path)
        events = [event.time for event in recording.events()]
        started = time.process_time()
        said = list(assessments(recording, args.interval, args.seed))
        pace = len(said) / (time.process_time() - started)
        readings = [reading for _, engines in recording.readings() for reading in engines]
        series = held([(a.time, a.probability.get(HORIZON, 0.0), bool(a.predicted)) for a in said], readings)
        counts = {FORECAST: count(series, events)} | {n: count(d(readings), events) for n, d in DETECTORS.items()}
        for name, part in counts.items():
            totals[name] = totals.get(name, Counts()) + part
        print(f"| {recording.name} | {pace:.0f} | {row(score(counts[FORECAST]))} |")
        reliability(bins, series, events)
        errors += time_errors(said, events)
    for name, total in totals.items():
        print(f"| **{name}** | | {row(score(total))} |")
    print("\n| said | happened | seconds |\n|---|---|---|")
    for said_sum, came, n in bins:
        if n:
            print(f"| {said_sum / n:.2f} | {came / n:.2f} | {n} |")
    if errors:
        middle = sorted(errors)[len(errors) // 2]
        print(f"\ntime to exhaustion: median absolute error {middle:.0%} of {len(errors)} forecasts")


def held(series: list[Point], readings: list[EngineReading]) -> list[Point]:
    """The last forecast at every recorded second."""
    found, k, last = [], 0, (0.0, False)
    for reading in readings:
        while k < len(series) and series[k][0] <= reading.time + 1e-6:
            last, k = (series[k][1], series[k][2]), k + 1
        found.append((reading.time, *last))
    return found


def row(told: Score) -> str:
    return " | ".join(shown(getattr(told, column)) for column in COLUMNS)


def reliability(bins: list[list[float]], series: list[Point], events: list[float]) -> None:
    """Add the forecasts whose outcome is recorded to ten bins of (sum said, sum happened, number)."""
    for at, probability, _ in series:
        if at > series[-1][0] - HORIZON:
            break
        place = bins[min(9, int(probability * 10))]
        place[0] += probability
        place[1] += any(at < event <= at + HORIZON for event in events)
        place[2] += 1


def time_errors(said: list[Assessment], events: list[float]) -> list[float]:
    """Relative errors of the time to exhaustion in the minute before each onset, its last two seconds left out."""
    return [
        abs(a.time_to_exhaustion_seconds - (onset - a.time)) / (onset - a.time)
        for onset in onsets_of(events)
        for a in said
        if a.time_to_exhaustion_seconds is not None and onset - HORIZON <= a.time <= onset - 2.0
    ]


if __name__ == "__main__":
    main()
