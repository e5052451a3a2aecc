"""The comparator without roll-outs: demand as a Gaussian whose mean and variance renewal theory gives along the path.

Running requests survive as the finished lengths say, given their ages; newcomers are a Poisson stream of the last
minute's rate and mean prompt. P(exhaustion by h) is the highest chance on the path up to h that demand passes capacity.
"""

import math

import numpy as np

from exporter.forecast.blocks import BlockLine
from exporter.forecast.occupancy import Occupancy
from exporter.forecast.projection import Projection
from exporter.forecast.recalibration import moments
from exporter.reading import EngineReading

Floats = np.ndarray
SECONDS = np.arange(1.0, 121.0)


def project(self: Occupancy, now: EngineReading, pool: BlockLine, rollouts: int) -> Projection | None:  # noqa: ARG001
    """Stands in for `Occupancy.project`."""
    if now.kv_usage is None or now.running is None or not self.steps.known or not self.outputs.size:
        return None
    t0, t1, t2 = self.steps.coefficients()
    pace = t0 + t1 * now.running + t2 * now.kv_usage * pool.tokens
    grown = SECONDS / pace
    live = self.tracker.state
    context = np.concatenate((live.prompt + live.age, live.prefilling))[:, None]
    age = np.concatenate((live.age, np.zeros(len(live.prefilling))))[:, None]
    stays = survival(self.outputs.sorted, age + grown) / np.maximum(survival(self.outputs.sorted, age), 1e-9)
    held = (context + grown) * pool.per_token + pool.per_request
    mean, variance = (held * stays).sum(axis=0), (held**2 * stays * (1 - stays)).sum(axis=0)
    fresh = survival(self.outputs.sorted, grown)
    each = (self.typical_prompt + grown) * pool.per_token + pool.per_request
    rate = self.arrivals.rate_of_a_minute
    mean += rate * np.cumsum(each * fresh) + (now.waiting or 0.0) * each * fresh
    variance += rate * np.cumsum(each**2 * fresh) + (now.waiting or 0.0) * each**2 * fresh * (1 - fresh)
    away = (pool.usable - mean) / np.sqrt(np.maximum(variance, 1e-9))
    chance = np.maximum.accumulate([0.5 * math.erfc(a / math.sqrt(2)) for a in away])
    shares = {s: float(chance[min(len(chance), max(1, round(s))) - 1]) for s in moments(self._options.horizons)}
    return Projection(shares, float(mean[:60].max()) / pool.usable, {}, None, None, None)  # type: ignore[arg-type]


def survival(lengths: Floats, tokens: Floats) -> Floats:
    """P(a request is longer than `tokens`) by the finished ones."""
    longer = len(lengths) - np.searchsorted(lengths, tokens, side="right")
    return np.asarray(longer / len(lengths))
