"""Fit the recalibration of the forecast on recordings, and judge it by leaving each recording out.

    python -m bench.forecast_fit RECORDINGS [--apart NAME]...

Replays every recording, keeps what the logistic sees (`Evidence`), and prints the coefficients for each horizon; then
the figures of forecasts whose coefficients were fitted on all recordings, and on all but the one they are judged on,
without and with the engine's own experience. Recordings set apart are fitted on, but not among the pooled figures.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.forecast_trace import HORIZON, Floats, Trace, chances, coefficients, figures, pooled, traces
from exporter.forecast.recalibration import FITTED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, help="a directory, or what forecast_score --keep kept of it")
    parser.add_argument("--apart", action="append", default=[], help="a recording that is not pooled")
    args = parser.parse_args()
    seen = [trace for trace in traces(args.recordings) if len(trace.known())]
    for h in FITTED:
        print(f"{h:g}: ({', '.join(f'{c:.3f}' for c in coefficients(seen, h))}),")
    judged = [trace for trace in seen if trace.name not in args.apart]
    everything = coefficients(seen, HORIZON)
    fits = {
        "fitted on all": {trace.name: everything for trace in judged},
        "left out": {trace.name: without(seen, trace) for trace in judged},
    }
    print("\n| | experience | skill | auc | w15@1 | w15@3 |\n|---|---|---|---|---|---|")
    for label, by_name in fits.items():
        for experience in (False, True):
            said = {t.name: chances(t, by_name[t.name], experience=experience) for t in judged}
            print(f"| {label} | {'yes' if experience else 'no'} | {figures(pooled(judged, said))} |")


def without(seen: Sequence[Trace], left_out: Trace) -> Floats:
    """Coefficients fitted on the other recordings."""
    return coefficients([trace for trace in seen if trace is not left_out], HORIZON)


if __name__ == "__main__":
    main()
