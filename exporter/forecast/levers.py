"""What each lever would do to the projection, computed by rolling the same futures under it.

Every lever is a ratio over now. Capacity levers give the pool's new size over its size (above 1 helps); demand
levers give the mean over futures of the highest demand within two minutes, with the lever over without it (below
1 helps). The futures are the same draws in both, so that their noise cancels.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from exporter.forecast.grid import Grid
from exporter.forecast.occupancy import UNKNOWN_LIMIT
from exporter.forecast.rollout import Load, roll
from exporter.forecast.schedule import Engine
from exporter.reading import CacheConfig

SIXTEEN_BIT = ("auto", "bfloat16", "float16", "half")
"""Cache types that FP8 halves; `auto` is the model's own type, which is 16 bits wide on all but the oldest."""
REPLICAS = 2
ROLLOUTS = 16
"""Futures that levers are tried on: enough for a mean, as both sides of a ratio share their noise."""


def levers(
    engine: Engine, rolled: Load, grid: Grid, cache: CacheConfig | None, max_model_len: int | None
) -> Mapping[str, float]:
    """Lever (`flag=value`) → ratio over now; only those that apply to this engine under the load that was rolled."""
    load = rolled.of(np.unique(np.linspace(0, len(rolled.left) - 1, ROLLOUTS).astype(np.intp)))
    found: dict[str, float] = {}
    if cache is not None and (cache.cache_dtype or "").lower() in SIXTEEN_BIT:
        found["kv_cache_dtype=fp8"] = (2.0 * (engine.pool.usable + 1.0) - 1.0) / engine.pool.usable
    now = _peak(engine, load, grid)
    if now <= 0:
        return found
    seats = _seats_that_fit(engine, load)
    if seats is not None:
        found[f"max_num_seqs={seats}"] = _peak(replace(engine, max_num_seqs=float(seats)), load, grid) / now
    if engine.max_num_batched_tokens < UNKNOWN_LIMIT:
        budget = max(1, round(engine.max_num_batched_tokens / 2))
        halved = replace(engine, max_num_batched_tokens=float(budget))
        found[f"max_num_batched_tokens={budget}"] = _peak(halved, load, grid) / now
    if max_model_len is not None and max_model_len > 1:
        limit = max_model_len // 2
        found[f"max_model_len={limit}"] = _peak(engine, _shorter(load, limit), grid) / now
    found[f"replicas={REPLICAS}"] = _peak(engine, _thinned(load), grid) / now
    return found


def _peak(engine: Engine, load: Load, grid: Grid) -> float:
    return float(roll(engine, load, grid, schedule=False).peak(grid.times[-1]).mean())


def _seats_that_fit(engine: Engine, load: Load) -> int | None:
    """The most requests whose contexts at their ends, on average, fit side by side; `None` if more never run."""
    ends = (load.context + load.left).ravel() if load.left.size else load.coming.prompt + load.coming.output
    if not len(ends):
        return None
    each = float(ends.mean()) * engine.pool.per_token + engine.pool.per_request
    seats = max(1, int(engine.pool.usable / each)) if each > 0 else None
    return None if seats is None or seats >= engine.max_num_seqs else seats


def _shorter(load: Load, limit: int) -> Load:
    """Requests that would pass the limit are refused; running ones stop there."""
    coming = load.coming
    left = np.maximum(0.0, np.minimum(load.left, limit - load.context))
    return replace(load, coming=coming.only(coming.prompt + coming.output <= limit), left=left)


def _thinned(load: Load) -> Load:
    """Each of the replicas gets every so-manieth of the requests still to come."""
    coming = load.coming
    number = np.arange(len(coming.arrival)) - coming.each(coming.begin)
    return replace(load, coming=coming.only(number % REPLICAS == 0))
