"""Many futures of one engine's pool at once: its demand, and when the scheduler runs out of blocks.

Every roll-out has its own arrivals, lengths and pace. A request holds its whole prompt from admission and
grows by one token per step until it ends, so the pool's level is a sum of ramps that start and stop: counted
into cells of a time grid, a cumulative sum gives all levels of all roll-outs without a loop over time.
Prefills run one after the other (Lindley's recursion as a running maximum). That level is *demand*: what the
load would hold if everything fitted; it may pass capacity.

Passing capacity is not yet a preemption: vLLM holds a request back when its prompt does not fit, and preempts
only when running ones cannot grow. So the roll-outs whose demand passes capacity, and only those, are gone
through again with admission as vLLM does it (`schedule.py`), as far as the fine cells
reach; beyond, the crossing stands for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from exporter.forecast.coming import Coming, Counts
from exporter.forecast.grid import Grid, Level
from exporter.forecast.lengths import Floats
from exporter.forecast.schedule import Engine, Queue, Running, exhausted_at

PREFILL_SHARE_LIMIT = 0.8
"""Decoding never slows down more than five-fold for prefills: the token budget keeps room for it."""

SCHEDULE_STRIDE = 2
"""The scheduler is followed on every second cell of the fine grid."""

REQUESTS_AT_ONCE = 32_768
"""Of all roll-outs, in working out demand: what is needed on the way is many times as large as what is kept."""


@dataclass(frozen=True, slots=True)
class Load:
    """R roll-outs of N running requests, and of those that come.

    context: (N,) tokens held by running requests now.  left: (R, N) tokens each still generates.
    backlog: prompt tokens of running requests still in prefill.     chance: (R, C) numbers in 0..1 for `exhausted_at`.
    """

    used_blocks: float
    context: Floats
    left: Floats
    coming: Coming
    backlog: float
    chance: Floats

    def of(self, rollouts: Counts) -> "Load":
        """Some of the roll-outs, by their numbers."""
        return replace(self, left=self.left[rollouts], coming=self.coming.of(rollouts), chance=self.chance[rollouts])

    def parts(self) -> Iterator["Load"]:
        """The roll-outs, some at a time; nearly always all at once."""
        if len(self.coming.arrival) <= REQUESTS_AT_ONCE:
            yield self
        else:
            for rollouts in self.coming.parts(REQUESTS_AT_ONCE):
                yield self.of(rollouts)


@dataclass(frozen=True, slots=True)
class Futures:
    """Levels over capacity at the end of each cell, shape (R, G); `times` (G,); `exhausted_at` (R,), +inf = never."""

    times: Floats
    demand: Floats
    running: Floats
    exhausted_at: Floats

    def demand_at(self, horizons: Sequence[float], quantiles: Sequence[float]) -> list[list[float]]:
        """For each of the `quantiles`, the demand at each of the `horizons`, in seconds.

        Requests that end within a cell fall before they have risen: the last trace of them can lie below nothing.
        """
        cells = np.minimum(np.searchsorted(self.times, horizons), len(self.times) - 1)
        found: list[list[float]] = np.maximum(_quantiles(self.demand[:, cells], quantiles), 0.0).tolist()
        return found

    def exhausted_by(self, seconds: float) -> float:
        """Share of the futures in which the blocks have run out by then."""
        return float((self.exhausted_at <= seconds).mean())

    def peak(self, horizon: float) -> Floats:
        """(R,) highest demand within `horizon` seconds."""
        highest: Floats = self.demand[:, self.times <= horizon + 1e-6].max(axis=1)
        return highest

    def median_peak(self, horizon: float) -> float:
        """The highest demand within `horizon` seconds that half of the futures pass."""
        return float(_quantiles(self.peak(horizon)[:, None], (0.5,))[0, 0])


def _quantiles(values: Floats, shares: Sequence[float]) -> Floats:
    """(Q, H) quantiles of each column of (R, H) values, linear between neighbours: numpy's at a tenth of their cost."""
    rising = np.sort(values, axis=0)
    rank = np.asarray(shares) * (len(values) - 1)
    below = rank.astype(np.intp)
    above = np.minimum(below + 1, len(values) - 1)
    return rising[below] + (rising[above] - rising[below]) * (rank - below)[:, None]


@dataclass(frozen=True, slots=True)
class _Demand:
    """What some of the roll-outs would hold if everything fitted, in blocks, and who comes when."""

    level: Floats
    running: Floats
    alive: Floats
    growth: Floats
    queue: Queue


def roll(engine: Engine, load: Load, grid: Grid, schedule: bool = True) -> Futures:
    """All futures of `load`; without `schedule` only their demand, and `exhausted_at` stays +inf."""
    capacity = engine.pool.usable
    demands, runnings, ends = [], [], []
    for part in load.parts():
        found = _demand(engine, part, grid)
        demands.append(found.level / capacity)
        runnings.append(found.running / capacity)
        ends.append(_exhausted(engine, part, grid, found) if schedule else np.full(len(found.level), np.inf))
    return Futures(grid.times, np.concatenate(demands), np.concatenate(runnings), np.concatenate(ends))


def _exhausted(engine: Engine, load: Load, grid: Grid, found: _Demand) -> Floats:
    """(R,) seconds until the blocks run out."""
    over = found.level > engine.pool.usable
    exhausted = np.full(len(over), np.inf)
    crossing = np.flatnonzero(over[:, : grid.fine_cells].any(axis=1))
    if len(crossing):
        ahead = slice(SCHEDULE_STRIDE - 1, grid.fine_cells, SCHEDULE_STRIDE)
        running, alive = found.running[crossing, ahead], found.alive[crossing, ahead]
        exhausted[crossing] = exhausted_at(
            engine,
            SCHEDULE_STRIDE * grid.fine,
            Running(running, alive, load.used_blocks, load.left.shape[1]),
            found.growth[crossing],
            found.queue.of(crossing),
            load.chance[crossing],
        )
    late = np.isinf(exhausted) & over[:, grid.fine_cells :].any(axis=1)
    exhausted[late] = grid.times[grid.fine_cells :][over[late, grid.fine_cells :].argmax(axis=1)]
    return exhausted


def _demand(engine: Engine, load: Load, grid: Grid) -> _Demand:
    """Demand on the grid.

    Pace: a step takes t0 + t1·n + t2·resident seconds at the present level, and what prefills take away from
    decoding, ρ = t1 · prompt tokens per second of the roll-out's own arrivals, stretches it by 1 / (1 − ρ).
    """
    rollouts, running = load.left.shape
    pool, coming = engine.pool, load.coming
    resident = load.used_blocks / pool.per_token if pool.per_token > 0 else 0.0
    step = engine.t0 + engine.t1 * running + engine.t2 * resident
    per_prompt_token = engine.t1 + step / max(1.0, engine.max_num_batched_tokens - running)
    before, prompts = coming.totals(coming.prompt)
    share = engine.t1 * (prompts + load.backlog) / grid.times[-1]
    pace = step / (1.0 - np.minimum(share, PREFILL_SHARE_LIMIT))
    growth = pool.per_token / pace
    level = Level(grid, rollouts)

    ends = load.left * pace[:, None]
    ended = (level.row[:, None] + grid.cell(ends)).ravel()
    held = ((load.context + load.left) * pool.per_token + pool.per_request).ravel()
    alive = running - np.cumsum(level.sums(ended), axis=1)
    running_level = load.used_blocks + level.ramps(alive, growth, ended, held, 0.0)

    before *= per_prompt_token
    start = coming.one_after_another(before, prompts * per_prompt_token, load.backlog * per_prompt_token)
    free = int(max(0, engine.max_num_seqs - running))
    if coming.count.max(initial=0) > free:
        start = np.maximum(start, _seat_times(ends, coming, free))
    stay = coming.prompt * per_prompt_token + coming.output * coming.each(pace)
    row = coming.each(level.row)
    starting, stopping = row + grid.cell(start), row + grid.cell(start + stay)
    first = coming.prompt * pool.per_token + pool.per_request
    last = first + coming.output * pool.per_token
    there = level.count(starting, stopping)
    coming_level = level.ramps(there, growth, stopping, last, level.sums(starting, first))
    queue = Queue(coming.begin, coming.begin + coming.count, start, first, last, stay)
    return _Demand(running_level + coming_level, running_level, alive, growth, queue)


def _seat_times(ends: Floats, coming: Coming, free: int) -> Floats:
    """(E,) when a sequence slot is free for each coming request: the k-th waits for the (k − free)-th end."""
    width = ends.shape[1] + 2
    never = np.full((len(ends), 1), np.inf)
    freed = np.concatenate((np.zeros_like(never), np.sort(ends, axis=1), never), axis=1)
    waits_for = np.arange(len(coming.arrival)) - coming.each(coming.begin + free - 1)
    row = coming.each(np.arange(len(ends)) * width)
    found: Floats = freed.ravel().take(row + np.minimum(np.maximum(waits_for, 0), width - 1))
    return found
