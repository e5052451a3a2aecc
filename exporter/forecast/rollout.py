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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exporter.forecast.lengths import Floats
from exporter.forecast.schedule import Engine, Queue, Running, exhausted_at

PREFILL_SHARE_LIMIT = 0.8
"""Decoding never slows down more than five-fold for prefills: the token budget keeps room for it."""

SCHEDULE_STRIDE = 2
"""The scheduler is followed on every second cell of the fine grid."""

ROLLOUTS_AT_ONCE = 32
"""Of the roll-outs, in working out demand: fewer take less memory, more take less time."""


@dataclass(frozen=True, slots=True)
class Load:
    """R roll-outs of N running and K coming requests.

    context: (N,) tokens held by running requests now.  left: (R, N) tokens each still generates.
    arrival: (R, K) seconds from now, rising; waiting ones come first at 0; +inf = never.
    prompt, output: (R, K) tokens.                      backlog: prompt tokens of running requests still in prefill.
    chance: (R, C) numbers in 0..1 for `exhausted_at`.
    """

    used_blocks: float
    context: Floats
    left: Floats
    arrival: Floats
    prompt: Floats
    output: Floats
    backlog: float
    chance: Floats

    def of(self, rows: slice) -> "Load":
        """Some of the roll-outs."""
        return replace(
            self,
            left=self.left[rows],
            arrival=self.arrival[rows],
            prompt=self.prompt[rows],
            output=self.output[rows],
            chance=self.chance[rows],
        )


@dataclass(frozen=True, slots=True)
class Futures:
    """Levels over capacity at the end of each cell, shape (R, G); `times` (G,); `exhausted_at` (R,), +inf = never."""

    times: Floats
    demand: Floats
    running: Floats
    exhausted_at: Floats

    def demand_exceeds_at(self) -> Floats:
        """(R,) seconds until demand first passes capacity; +inf = not within the grid."""
        over = self.demand > 1.0
        return np.where(over.any(axis=1), self.times[over.argmax(axis=1)], np.inf)

    def peak(self, horizon: float) -> Floats:
        """(R,) highest demand within `horizon` seconds."""
        highest: Floats = self.demand[:, self.times <= horizon + 1e-6].max(axis=1)
        return highest


class Grid:
    """Cells of `fine` seconds up to `turn`, of `coarse` seconds up to `end`; one more holds what comes later."""

    def __init__(self, turn: float = 60.0, end: float = 120.0, fine: float = 1.0, coarse: float = 5.0) -> None:
        """Edges are the ends of the cells."""
        self.fine, self.coarse, self.turn = fine, coarse, turn
        self.fine_cells = round(turn / fine)
        self.cells = self.fine_cells + max(0, round((end - turn) / coarse))
        ends = np.arange(1, self.cells + 1, dtype=float)
        self.times = np.where(ends <= self.fine_cells, ends * fine, turn + (ends - self.fine_cells) * coarse)
        self.widths = np.diff(self.times, prepend=0.0)

    def cell(self, time: Floats) -> NDArray[np.intp]:
        """The cell each time falls into; `cells` for times beyond the grid."""
        late = self.fine_cells + (time - self.turn) / self.coarse
        found = np.where(time < self.turn, time / self.fine, late)
        return np.minimum(found, self.cells).astype(np.intp)


class _Level:
    """Ramps summed on the grid."""

    def __init__(self, grid: Grid, rollouts: int) -> None:
        self._grid, self._rollouts = grid, rollouts
        self._width = grid.cells + 1
        self._rows = np.arange(rollouts)[:, None] * self._width

    def cells(self, times: Floats) -> NDArray[np.intp]:
        """Flat indices of the cells that `times` (R, any) fall into."""
        flat: NDArray[np.intp] = (self._rows + self._grid.cell(times)).ravel()
        return flat

    def _sum(self, cells: NDArray[np.intp], values: Floats | None = None) -> Floats:
        weights = None if values is None else values.ravel()
        found: Floats = np.bincount(cells, weights, self._rollouts * self._width).astype(np.float64)
        return found.reshape(self._rollouts, self._width)[:, :-1]

    def ramps(self, alive: Floats, growth: Floats, ends: NDArray[np.intp], last: Floats) -> Floats:
        """(R, G) growth of `alive` (R, G) requests, less the `last` blocks of each that ends."""
        fall = self._sum(ends, last)
        return np.cumsum(alive * self._grid.widths * growth[:, None] - fall, axis=1)

    def count(self, cells: NDArray[np.intp]) -> Floats:
        """(R, G) how many events have happened by the end of each cell."""
        return np.cumsum(self._sum(cells), axis=1)

    def total(self, cells: NDArray[np.intp], values: Floats) -> Floats:
        """(R, G) what the events have added up to by the end of each cell."""
        return np.cumsum(self._sum(cells, values), axis=1)


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
    parts = [_demand(engine, rows, grid) for rows in _slices(load)]
    demand = np.concatenate([part.level for part in parts])
    running = np.concatenate([part.running for part in parts])
    exhausted = np.full(len(demand), np.inf)
    if not schedule:
        return Futures(grid.times, demand / capacity, running / capacity, exhausted)
    crossing = np.flatnonzero((demand[:, : grid.fine_cells] > capacity).any(axis=1))
    if len(crossing):
        ahead = slice(SCHEDULE_STRIDE - 1, grid.fine_cells, SCHEDULE_STRIDE)
        alive = np.concatenate([part.alive for part in parts])[crossing, ahead]
        exhausted[crossing] = exhausted_at(
            engine,
            SCHEDULE_STRIDE * grid.fine,
            Running(running[crossing, ahead], alive, load.used_blocks, load.left.shape[1]),
            np.concatenate([part.growth for part in parts])[crossing],
            _joined([part.queue for part in parts], crossing),
            load.chance[crossing],
        )
    late = np.isinf(exhausted) & (demand[:, grid.fine_cells :] > capacity).any(axis=1)
    exhausted[late] = grid.times[grid.fine_cells :][(demand[late, grid.fine_cells :] > capacity).argmax(axis=1)]
    return Futures(grid.times, demand / capacity, running / capacity, exhausted)


def _slices(load: Load) -> Iterator[Load]:
    """The roll-outs, some at a time: what is worked out on the way is many times as large as what is kept."""
    for start in range(0, len(load.left), ROLLOUTS_AT_ONCE):
        yield load.of(slice(start, start + ROLLOUTS_AT_ONCE))


def _joined(queues: Sequence[Queue], rows: NDArray[np.intp]) -> Queue:
    """The rows of all queues that are asked for."""

    def of(part: Callable[[Queue], Floats]) -> Floats:
        return np.concatenate([part(queue) for queue in queues])[rows]

    return Queue(of(lambda q: q.start), of(lambda q: q.first), of(lambda q: q.last), of(lambda q: q.stay))


def _demand(engine: Engine, load: Load, grid: Grid) -> _Demand:
    """Demand on the grid.

    Pace: a step takes t0 + t1·n + t2·resident seconds at the present level, and what prefills take away from
    decoding, ρ = t1 · prompt tokens per second of the roll-out's own arrivals, stretches it by 1 / (1 − ρ).
    """
    rollouts, running = load.left.shape
    pool = engine.pool
    resident = load.used_blocks / pool.per_token if pool.per_token > 0 else 0.0
    step = engine.t0 + engine.t1 * running + engine.t2 * resident
    per_prompt_token = engine.t1 + step / max(1.0, engine.max_num_batched_tokens - running)
    comes = np.isfinite(load.arrival)
    work = np.where(comes, load.prompt * per_prompt_token, 0.0)
    share = engine.t1 * (np.where(comes, load.prompt, 0.0).sum(axis=1) + load.backlog) / grid.times[-1]
    pace = step / (1.0 - np.minimum(share, PREFILL_SHARE_LIMIT))
    growth = pool.per_token / pace
    level = _Level(grid, rollouts)

    ends = load.left * pace[:, None]
    ended = level.cells(ends)
    held = (load.context + load.left) * pool.per_token + pool.per_request
    alive = running - level.count(ended)
    running_level = load.used_blocks + level.ramps(alive, growth, ended, held)

    before = np.cumsum(work, axis=1) - work + load.backlog * per_prompt_token
    start = np.maximum.accumulate(np.where(comes, load.arrival - before, -np.inf), axis=1) + before
    start = np.where(comes, start, np.inf)
    seats = engine.max_num_seqs - running
    if load.arrival.shape[1] > seats:
        start = np.maximum(start, _seat_times(ends, load.arrival.shape[1], int(max(0, seats))))
    stay = work + load.output * pace[:, None]
    starting, stopping = level.cells(start), level.cells(start + stay)
    first = load.prompt * pool.per_token + pool.per_request
    last = first + load.output * pool.per_token
    coming_level = level.total(starting, first) + level.ramps(
        level.count(starting) - level.count(stopping), growth, stopping, last
    )
    queue = Queue(start, first, last, stay)
    return _Demand(running_level + coming_level, running_level, alive, growth, queue)


def _seat_times(ends: Floats, coming: int, free: int) -> Floats:
    """(R, K) when a sequence slot is free for the k-th coming request: the (k − free)-th end of a running one."""
    freed = np.sort(ends, axis=1)
    seats = np.concatenate((np.zeros((len(ends), free)), freed), axis=1)
    short = coming - seats.shape[1]
    return np.pad(seats, ((0, 0), (0, short)), constant_values=np.inf) if short > 0 else seats[:, :coming]
