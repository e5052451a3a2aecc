"""From roll-out shares to calibrated probabilities.

A logistic per horizon h on what the roll-outs and the last minutes say:

    logit P = b0 + b1·L(h) + b2·L(e) + b3·usage + b4·exp(-s / 30 s) + b5·mean usage of 5 min + b6·tanh((m - 1) / 0.2)

L(h) is the logit of the share of roll-outs exhausted within h seconds, kept off 0 and 1, and e an earlier moment
(`EARLIER`); s the seconds since the last preemption; m the median over roll-outs of the highest demand over capacity
within a minute. The coefficients are fitted on recordings of all kinds of load together, and judged by leaving
each recording out in turn (`bench/forecast_fit.py`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

SHARE_FLOOR = 0.02
"""A share of a few dozen roll-outs says no more than this about rare events."""
PREEMPTION_MEMORY = 30.0
DEMAND_WIDTH = 0.2
EARLIER: Mapping[float, float] = {15.0: 5.0, 30.0: 10.0, 60.0: 15.0, 120.0: 30.0}
FITTED: Mapping[float, tuple[float, ...]] = {
    15.0: (-2.891, 0.527, 0.319, 4.685, 0.537, -1.621, -0.343),
    30.0: (-2.355, 0.670, 0.117, 3.844, 0.532, -1.623, -0.636),
    60.0: (-0.872, 0.600, 0.142, 2.412, 0.479, -1.763, -0.413),
    120.0: (0.415, 0.190, 0.546, 1.683, 0.399, -1.964, -0.438),
}
"""Horizon in seconds → (b0, …, b6)."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the logistic sees. `shares`: seconds → share of roll-outs exhausted by then."""

    shares: Mapping[float, float]
    median_peak: float
    usage: float
    usage_5min: float
    seconds_since_preemption: float

    def features(self, horizon: float) -> tuple[float, ...]:
        """The terms of the logistic at `horizon`, the constant 1 first."""
        return (
            1.0,
            self._logit(horizon),
            self._logit(earlier(horizon)),
            self.usage,
            math.exp(-self.seconds_since_preemption / PREEMPTION_MEMORY),
            self.usage_5min,
            math.tanh((self.median_peak - 1.0) / DEMAND_WIDTH),
        )

    def _logit(self, horizon: float) -> float:
        share = min(1.0 - SHARE_FLOOR, max(SHARE_FLOOR, self.shares[horizon]))
        return math.log(share / (1.0 - share))


@lru_cache(maxsize=64)
def earlier(horizon: float) -> float:
    """The moment e that goes with a horizon, on a line between the fitted ones."""
    return float(np.interp(horizon, list(EARLIER), list(EARLIER.values())))


def moments(horizons: Sequence[float]) -> tuple[float, ...]:
    """The seconds at which shares of roll-outs are read for these horizons."""
    return tuple(sorted({*horizons, *(earlier(h) for h in horizons)}))


@lru_cache(maxsize=64)
def coefficients(horizon: float) -> tuple[float, ...]:
    """Fitted coefficients, on a line between neighbours in log horizon; the nearest beyond the ends."""
    fitted = sorted(FITTED)
    at = float(np.interp(np.log(horizon), np.log(fitted), np.arange(len(fitted))))
    low = min(int(at), len(fitted) - 2)
    part = at - low
    return tuple((1 - part) * a + part * b for a, b in zip(FITTED[fitted[low]], FITTED[fitted[low + 1]], strict=True))


def log_odds(evidence: Evidence, horizons: Sequence[float]) -> dict[float, float]:
    """Logit P(at least one preemption within each horizon), never falling as the horizon grows."""
    found: dict[float, float] = {}
    highest = -math.inf
    for horizon in sorted(horizons):
        terms = zip(coefficients(horizon), evidence.features(horizon), strict=True)
        highest = max(highest, sum(b * x for b, x in terms))
        found[horizon] = highest
    return found


def probability(log_odds: float) -> float:
    """The probability that has these log odds."""
    return 1.0 / (1.0 + math.exp(-min(30.0, max(-30.0, log_odds))))
