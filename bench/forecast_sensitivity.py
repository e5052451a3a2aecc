"""How much the score of the forecast depends on each constant of its model: halved and doubled, one at a time.

    python -m bench.forecast_sensitivity RECORDINGS_DIR [--only NAME]... [--seconds S] [--constant NAME]...

Replays the named recordings (their first S seconds) once for each change, with the shipped coefficients and the
engine's own experience, and prints the pooled skill and what the change costs, in Markdown.
"""

import argparse
import importlib
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.forecast_trace import HORIZON, chances, pooled, traces
from exporter.backtest.scoring import Score
from exporter.forecast.recalibration import FITTED

CONSTANTS = (
    "effort.ROLLOUTS", "occupancy.PRIOR_PROMPT", "occupancy.PRIOR_OUTPUT", "occupancy.CACHED_MEMORY",
    "occupancy.SHORTEST_MEMORY", "occupancy.LONGEST_MEMORY", "lengths.PARETO_SHAPE", "lengths.FEW_SURVIVORS",
    "steps.DECAY_SECONDS", "arrivals.ANALOGUE_PRIOR_SECONDS", "arrivals.PARAMETRIC_SHARE",
    "schedule.LOOK_AHEAD", "effort.REROLL_SECONDS", "forecaster.CALM_STRETCH",
    "recalibration.SHARE_FLOOR", "recalibration.PREEMPTION_MEMORY", "recalibration.DEMAND_WIDTH",
    "experience.DEVIATION", "experience.FADING_SECONDS", "window.MEAN_SECONDS",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--only", action="append", default=[], help="a recording to replay; all without it")
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--constant", action="append", default=[], help="as MODULE.NAME; all without it")
    args = parser.parse_args()
    shipped = scored(args).skill or 0.0
    print(f"as shipped: {shipped:.4f}\n\n| constant | shipped | halved | doubled |\n|---|---|---|---|", flush=True)
    for name in args.constant or CONSTANTS:
        module, _, attribute = name.partition(".")
        owner = importlib.import_module(f"exporter.forecast.{module}")
        value = getattr(owner, attribute)
        cells = []
        for factor in (0.5, 2.0):
            with patch.object(owner, attribute, changed(value, factor)):
                cells.append(f"{(scored(args).skill or 0.0) - shipped:+.4f}")
        shown = "all" if isinstance(value, np.ndarray) else f"{value:g}"
        print(f"| `{name}` | {shown} | {' | '.join(cells)} |", flush=True)


def changed(value: Any, factor: float) -> Any:
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def scored(args: argparse.Namespace) -> Score:
    seen = traces(args.recordings, args.only, args.seconds)
    b = np.array(FITTED[HORIZON])
    return pooled(seen, {trace.name: chances(trace, b, experience=True) for trace in seen})


if __name__ == "__main__":
    main()
