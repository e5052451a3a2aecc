"""Many futures of one engine's pool at once: the demand path, its maximum, and the crossing of capacity.

Every roll-out has its own arrivals, lengths and pace. A request holds its whole prompt from admission and
grows by one token per step until it ends, so the pool's level is a sum of ramps that start and stop: counted
into cells of a time grid, a cumulative sum gives all levels of all roll-outs without a loop over time.
Prefills run one after the other (Lindley's recursion as a running maximum). The level is *demand*: it may
pass capacity, and the first time it does is the exhaustion. What bounds admission is kept apart: `running`
is the level if nobody were admitted any more, which is where vLLM preempts even though it holds the queue back.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.forecast.lengths import Floats

PREFILL_SHARE_LIMIT = 0.8
"""Decoding never slows down more than five-fold for prefills: the token budget keeps room for it."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What bounds the schedule. Seconds per step = `t0 + t1·new tokens + t2·resident tokens`."""

    usable_blocks: float
    block_size: float
    max_num_seqs: float
    t0: float
    t1: float
    t2: float


@dataclass(frozen=True, slots=True)
class Load:
    """R roll-outs of N running and K coming requests.

    context: (N,) tokens held by running requests now.  left: (R, N) tokens each still generates.
    arrival: (R, K) seconds from now, rising; waiting ones come first at 0; +inf = never.
    prompt, output: (R, K) tokens.                      backlog: prompt tokens of running requests still in prefill.
    """

    used_blocks: float
    context: Floats
    left: Floats
    arrival: Floats
    prompt: Floats
    output: Floats
    backlog: float


@dataclass(frozen=True, slots=True)
class Futures:
    """Levels over capacity at the end of each cell; shape (R, G), `times` (G,)."""

    times: Floats
    demand: Floats
    running: Floats

    def exhausted_at(self) -> Floats:
        """(R,) seconds until demand first passes capacity; +inf = not within the grid."""
        over = self.demand > 1.0
        return np.where(over.any(axis=1), self.times[over.argmax(axis=1)], np.inf)

    def peak(self, horizon: float) -> Floats:
        """(R,) highest demand within `horizon` seconds."""
        highest: Floats = self.demand[:, self.times <= horizon + 1e-6].max(axis=1)
        return highest

    def running_peak(self, horizon: float) -> Floats:
        """(R,) highest level within `horizon` seconds if nobody were admitted any more."""
        highest: Floats = self.running[:, self.times <= horizon + 1e-6].max(axis=1)
        return highest


class Grid:
    """Cells of `fine` seconds up to `turn`, of `coarse` seconds up to `end`; one more holds what comes later."""

    def __init__(self, turn: float = 60.0, end: float = 120.0, fine: float = 1.0, coarse: float = 5.0) -> None:
        """Edges are the ends of the cells."""
        self.fine, self.coarse, self.turn = fine, coarse, turn
        self._fine_cells = round(turn / fine)
        self.cells = self._fine_cells + max(0, round((end - turn) / coarse))
        ends = np.arange(1, self.cells + 1, dtype=float)
        self.times = np.where(ends <= self._fine_cells, ends * fine, turn + (ends - self._fine_cells) * coarse)
        self.widths = np.diff(self.times, prepend=0.0)

    def cell(self, time: Floats) -> NDArray[np.intp]:
        """The cell each time falls into; `cells` for times beyond the grid."""
        late = self._fine_cells + (time - self.turn) / self.coarse
        found = np.where(time < self.turn, time / self.fine, late)
        return np.minimum(found, self.cells).astype(np.intp)


class _Level:
    """Ramps summed on the grid."""

    def __init__(self, grid: Grid, rollouts: int) -> None:
        self._grid, self._rollouts = grid, rollouts
        self._width = grid.cells + 1
        self._rows = np.arange(rollouts)[:, None] * self._width

    def _sum(self, times: Floats, values: Floats | None = None) -> Floats:
        cells = (self._rows + self._grid.cell(times)).ravel()
        weights = None if values is None else values.ravel()
        found: Floats = np.bincount(cells, weights, self._rollouts * self._width).astype(np.float64)
        return found.reshape(self._rollouts, self._width)[:, :-1]

    def path(
        self, starts: Floats | None, first: Floats, ends: Floats, last: Floats, growth: Floats, already: float
    ) -> Floats:
        """(R, G) level of requests that hold `first` blocks from `starts` and grow by `growth` a second until `ends`."""
        stopped = np.cumsum(self._sum(ends), axis=1)
        started = float(already) if starts is None else np.cumsum(self._sum(starts), axis=1)
        alive = started - stopped
        level = np.cumsum(alive * self._grid.widths * growth[:, None], axis=1) - np.cumsum(
            self._sum(ends, last), axis=1
        )
        return level if starts is None else level + np.cumsum(self._sum(starts, first), axis=1)


def roll(engine: Engine, load: Load, grid: Grid) -> Futures:
    """All futures of `load`.

    Pace: a step takes t0 + t1·n + t2·resident seconds at the present level, and what prefills take away from
    decoding, ρ = t1 · prompt tokens per second of the roll-out's own arrivals, stretches it by 1 / (1 − ρ).
    """
    rollouts, running = load.left.shape
    size, capacity = engine.block_size, engine.usable_blocks
    step = engine.t0 + engine.t1 * running + engine.t2 * load.used_blocks * size
    comes = np.isfinite(load.arrival)
    work = np.where(comes, load.prompt * engine.t1, 0.0)
    share = (work.sum(axis=1) + load.backlog * engine.t1) / grid.times[-1]
    pace = step / (1.0 - np.minimum(share, PREFILL_SHARE_LIMIT))
    growth = 1.0 / (pace * size)
    level = _Level(grid, rollouts)

    ends = load.left * pace[:, None]
    held = (load.context + load.left) / size + 0.5
    running_level = load.used_blocks + level.path(None, held, ends, held, growth, running)

    before = np.cumsum(work, axis=1) - work
    start = np.maximum.accumulate(load.arrival - before, axis=1) + before
    seats = engine.max_num_seqs - running
    if load.arrival.shape[1] > seats:
        start = np.maximum(start, _seat_times(ends, load.arrival.shape[1], int(max(0, seats))))
    finish = start + work + load.output * pace[:, None]
    first, last = np.floor(load.prompt / size) + 1.0, (load.prompt + load.output) / size + 0.5
    coming_level = level.path(start, first, finish, last, growth, 0)
    return Futures(grid.times, (running_level + coming_level) / capacity, running_level / capacity)


def _seat_times(ends: Floats, coming: int, free: int) -> Floats:
    """(R, K) when a sequence slot is free for the k-th coming request: the (k − free)-th end of a running one."""
    freed = np.sort(ends, axis=1)
    seats = np.concatenate((np.zeros((len(ends), free)), freed), axis=1)
    short = coming - seats.shape[1]
    return np.pad(seats, ((0, 0), (0, short)), constant_values=np.inf) if short > 0 else seats[:, :coming]
