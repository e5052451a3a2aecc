"""Fit the recalibration of the forecast on recordings, and judge it by leaving each recording out.

    python -m bench.forecast_fit RECORDINGS_DIR

Replays every recording, keeps what the logistic sees (`Evidence`), and prints the coefficients for each horizon
with the pooled skill of forecasts made by coefficients fitted on the other recordings.
"""

import argparse
import bisect
from pathlib import Path

import numpy as np

from exporter.forecast.forecaster import EngineForecaster
from exporter.forecast.recalibration import FITTED
from exporter.replay import options_of, pool_in
from exporter.sources.recording import Recording

RIDGE = 1e-3
Floats = np.ndarray


def evidence(recording: Recording) -> dict[float, tuple[Floats, Floats]]:
    """Horizon → (features without the constant, outcomes), for each second whose outcome is recorded."""
    options = options_of(recording.meta())
    forecaster = EngineForecaster(options)
    events = [event.time for event in recording.events()]
    found: dict[float, list[tuple[tuple[float, ...], bool]]] = {h: [] for h in FITTED}
    times: list[float] = []
    for time, engines in recording.readings():
        for reading in engines:
            forecaster.observe(reading, pool_in(reading, options.max_model_len))
            times.append(time)
            if forecaster.evidence is None:
                continue
            for h in FITTED:
                k = bisect.bisect_right(events, time)
                came = k < len(events) and events[k] - time <= h
                found[h].append((forecaster.evidence.features(h)[1:], came))
    keep = {h: rows[: max(0, len(rows) - round(1.5 * h))] for h, rows in found.items()}
    return {h: (np.array([x for x, _ in rows]), np.array([y for _, y in rows], float)) for h, rows in keep.items()}


def fitted(x: Floats, y: Floats) -> Floats:
    """Logistic regression with a small ridge on standardised features; (b0, b1, …) on the raw ones."""
    mean, spread = x.mean(axis=0), x.std(axis=0) + 1e-9
    a = np.column_stack([np.ones(len(x)), (x - mean) / spread])
    b = np.zeros(a.shape[1])
    ridge = RIDGE * len(x) * np.diag([0.0] + [1.0] * x.shape[1])
    for _ in range(15):
        p = 1 / (1 + np.exp(-np.clip(a @ b, -30, 30)))
        weight = np.maximum(p * (1 - p), 1e-6)
        b = b + np.linalg.solve(a.T @ (a * weight[:, None]) + ridge, a.T @ (y - p) - ridge @ b)
    raw = b[1:] / spread
    return np.concatenate([[b[0] - (raw * mean).sum()], raw])


def said(x: Floats, b: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(b[0] + x @ b[1:], -30, 30))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    args = parser.parse_args()
    every = [evidence(Recording(path)) for path in sorted(args.recordings.glob("*.jsonl.gz"))]
    for h in FITTED:
        parts = [part[h] for part in every if len(part[h][1])]
        x, y = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        squares = 0.0
        for k, (left_x, left_y) in enumerate(parts):
            others = [part for n, part in enumerate(parts) if n != k]
            b = fitted(*(np.concatenate([part[m] for part in others]) for m in (0, 1))) if others else fitted(x, y)
            squares += float(((said(left_x, b) - left_y) ** 2).sum())
        base = float(y.mean())
        skill = 1 - squares / len(y) / (base * (1 - base)) if 0 < base < 1 else float("nan")
        print(f"{h:g}: ({', '.join(f'{c:.3f}' for c in fitted(x, y))}),  # skill of those left out: {skill:.3f}")


if __name__ == "__main__":
    main()
