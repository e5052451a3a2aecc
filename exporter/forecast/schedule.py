"""Admission as vLLM V1 does it, cell by cell, for the roll-outs in which blocks become scarce.

First come first served: the head of the queue is admitted when its whole prompt fits beside the watermark and
a sequence slot is free; while it does not fit, nobody behind it is. Running requests come first and take
blocks as they grow; when none is left, the engine preempts. That moment is the exhaustion.
"""

from dataclasses import dataclass

import numpy as np

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
class Queue:
    """Coming requests in order, (R, K): the earliest start in seconds, blocks at start and end, seconds in between."""

    start: Floats
    first: Floats
    last: Floats
    stay: Floats


def exhausted_at(
    engine: Engine, seconds: float, running: Floats, alive: Floats, growth: Floats, queue: Queue
) -> Floats:
    """(R,) seconds until running requests cannot grow; +inf = not within the cells given.

    Args:
        engine: Capacity, watermark and sequence slots.
        seconds: Length of a cell.
        running: (R, C) blocks held by the requests that run now, at the end of each cell.
        alive: (R, C) how many of them still run.
        growth: (R,) blocks per second one request grows by.
        queue: The requests that wait and that will come.
    """
    rollouts, cells = running.shape
    coming = queue.start.shape[1]
    pad = ((0, 0), (0, LOOK_AHEAD))
    width = coming + LOOK_AHEAD
    start = np.pad(queue.start, pad, constant_values=np.inf).ravel()
    first, last, stay = (np.pad(part, pad).ravel() for part in (queue.first, queue.last, queue.stay))
    row_start, ahead = np.arange(rollouts) * width, np.arange(LOOK_AHEAD)
    cell_start = np.arange(rollouts) * (cells + 1)
    freed, ended = np.zeros(rollouts * (cells + 1)), np.zeros(rollouts * (cells + 1))
    level, active = np.zeros(rollouts), np.zeros(rollouts)
    head = np.zeros(rollouts, dtype=np.intp)
    found = np.full(rollouts, np.inf)
    limit = np.full(rollouts, engine.pool.usable - engine.watermark_blocks)
    grown = growth * seconds
    for cell in range(cells):
        now = (cell + 1) * seconds
        level += active * grown - freed[cell_start + cell]
        active -= ended[cell_start + cell]
        used = running[:, cell] + level
        over = used > engine.pool.usable
        if over.any():
            found[over & (found == np.inf)] = now
            limit[over] = -np.inf
            if found.max() < np.inf:
                break
        next_in = row_start + head
        arrived = start[next_in] <= now
        if not (arrived & (used < limit)).any():
            continue
        window = next_in[:, None] + ahead
        fits = used[:, None] + np.cumsum(first[window], axis=1) <= limit[:, None]
        seat = (alive[:, cell] + active)[:, None] + ahead < engine.max_num_seqs
        taken = np.logical_and.accumulate(fits & seat & (start[window] <= now), axis=1)
        row, column = np.nonzero(taken)
        if not len(row):
            continue
        who = window[row, column]
        end = np.clip((now + stay[who]) / seconds, cell + 1, cells).astype(np.intp) + cell_start[row]
        np.add.at(freed, end, last[who])
        np.add.at(ended, end, 1.0)
        count = taken.sum(axis=1)
        level += np.bincount(row, first[who], rollouts)
        active += count
        head += count
    return found
