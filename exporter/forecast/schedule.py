"""Admission as vLLM V1 does it, cell by cell, for the roll-outs in which blocks become scarce.

First come first served: the head of the queue is admitted when its whole prompt fits beside the watermark and
a sequence slot is free; while it does not fit, nobody behind it is. Running requests come first and take
blocks as they grow; when none is left, the engine preempts. That moment is the exhaustion.

Inside a cell of w seconds, n requests end at times that are as good as random. With F blocks free and growth
of g blocks a second, no end comes within F / g seconds with probability exp(-n F / (g w)), and then the blocks
run out. While a queue is held back, what an end gives back is taken at once by the head, so that each of the n
ends starts the race anew.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exporter.forecast.blocks import BlockLine
from exporter.forecast.lengths import Floats

LOOK_AHEAD = 12
"""At most so many requests are admitted in one cell; the next cell goes on with the rest."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What bounds the schedule. Seconds per step = `t0 + t1·new tokens + t2·resident tokens`."""

    pool: BlockLine
    max_num_seqs: float
    max_num_batched_tokens: float
    watermark_blocks: float
    t0: float
    t1: float
    t2: float


@dataclass(frozen=True, slots=True)
class Running:
    """Requests that run now, (R, C): blocks they hold and how many still run, at the end of each cell; blocks now."""

    level: Floats
    alive: Floats
    used: float
    count: int


@dataclass(frozen=True, slots=True)
class Queue:
    """Coming requests, one roll-out's after the other's, each in order.

    begin, end: (R,) where each roll-out's requests lie.
    start: (E,) the earliest start in seconds.   first, last: blocks at start and end.   stay: seconds in between.
    """

    begin: NDArray[np.intp]
    end: NDArray[np.intp]
    start: Floats
    first: Floats
    last: Floats
    stay: Floats

    def of(self, rollouts: NDArray[np.intp]) -> "Queue":
        """That of some of the roll-outs, by their numbers."""
        return replace(self, begin=self.begin[rollouts], end=self.end[rollouts])


def exhausted_at(
    engine: Engine, seconds: float, running: Running, growth: Floats, queue: Queue, chance: Floats
) -> Floats:
    """(R,) seconds until running requests cannot grow; +inf = not within the cells given.

    Args:
        engine: Capacity, watermark and sequence slots.
        seconds: Length of a cell.
        running: The requests that run now.
        growth: (R,) blocks per second one request grows by.
        queue: The requests that wait and that will come.
        chance: (R, C) numbers in 0..1 that decide the race between growth and ends in each cell.
    """
    rollouts, cells = running.level.shape
    # What lies beyond a roll-out's own requests never comes.
    start, first = np.append(queue.start, np.inf), np.append(queue.first, 0.0)
    never, ahead = len(queue.start), np.arange(LOOK_AHEAD)
    cell_start = np.arange(rollouts) * (cells + 1)
    freed, ended = np.zeros(rollouts * (cells + 1)), np.zeros(rollouts * (cells + 1))
    level, active = np.zeros(rollouts), np.zeros(rollouts)
    head = queue.begin
    found = np.full(rollouts, np.inf)
    limit = np.full(rollouts, engine.pool.usable - engine.watermark_blocks)
    leaving = -np.diff(running.alive, axis=1, prepend=float(running.count))
    used = np.full(rollouts, running.used)
    next_in = np.where(head < queue.end, head, never)
    blocked = (start[next_in] <= 0.0) & (used + first[next_in] > limit)
    for cell in range(cells):
        now = (cell + 1) * seconds
        here = cell_start + cell
        left = ended[here] + leaving[:, cell]
        grown = (active + running.alive[:, cell]) * growth * seconds
        lost = _lost_race(engine.pool.usable - used, grown, left, blocked) > chance[:, cell]
        level += active * growth * seconds - freed[here]
        active -= ended[here]
        used = running.level[:, cell] + level
        over = lost | (used > engine.pool.usable)
        if over.any():
            found[over & (found == np.inf)] = now
            limit[over] = -np.inf
            if found.max() < np.inf:
                break
        arrived = start[next_in] <= now
        blocked = arrived
        if not (arrived & (used < limit)).any():
            continue
        window = head[:, None] + ahead
        window = np.where(window < queue.end[:, None], window, never)
        fits = used[:, None] + np.cumsum(first[window], axis=1) <= limit[:, None]
        seat = (running.alive[:, cell] + active)[:, None] + ahead < engine.max_num_seqs
        taken = np.logical_and.accumulate(fits & seat & (start[window] <= now), axis=1)
        row, column = np.nonzero(taken)
        if not len(row):
            continue
        who = window[row, column]
        end = np.clip((now + queue.stay[who]) / seconds, cell + 1, cells).astype(np.intp) + cell_start[row]
        np.add.at(freed, end, queue.last[who])
        np.add.at(ended, end, 1.0)
        count = taken.sum(axis=1)
        entered = np.bincount(row, first[who], rollouts)
        level += entered
        used = used + entered
        active += count
        head = head + count
        next_in = np.where(head < queue.end, head, never)
        blocked = start[next_in] <= now
    return found


def _lost_race(free: Floats, grown: Floats, left: Floats, blocked: NDArray[np.bool_]) -> Floats:
    """(R,) probability that growth takes the last free block before an end gives some back, in one cell."""
    if not (free < grown).any():
        return np.zeros_like(free)
    once = np.where(free < grown, np.exp(-left * np.maximum(free, 0.0) / np.maximum(grown, 1e-9)), 0.0)
    lost: Floats = 1.0 - (1.0 - once) ** np.where(blocked, np.maximum(left, 1.0), 1.0)
    return lost
