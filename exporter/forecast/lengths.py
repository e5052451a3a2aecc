"""vLLM's length histograms, read as distributions of tokens per request.

The page adds a finished request to a bucket and to a sum. When one request finished between two
readings the rise of the sum is its exact length; when several did, each is known to its bucket and
all together to their total.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from operator import sub
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from exporter.forecast.bounds import ENDED
from exporter.reading import EngineReading, Histogram

Floats = NDArray[np.float64]

PARETO_SHAPE = 1.5
"""Tail index used beyond the longest requests seen; between the 1.1–2 measured on public traces of output lengths."""
FEW_SURVIVORS = 8
"""With fewer finished requests longer than an age, the tail beyond it is mostly extrapolation."""


def newly_finished(before: Histogram | None, now: Histogram) -> Floats:
    """Lengths of the requests that entered the histogram since `before`, in tokens.

    Bucket midpoints (geometric), scaled inside their buckets so that they add up to the rise of the sum.
    """
    count = round(now.count - (before.count if before else 0.0))
    total = now.sum - (before.sum if before else 0.0)
    if count <= 0 or total < 0:
        return np.empty(0)
    if count == 1 or not now.bounds:
        return np.full(min(count, ENDED), total / count)
    counts = now.counts
    if before is not None and before.bounds == now.bounds:
        counts = tuple(map(sub, counts, before.counts))
    per_bucket = [round(share) for share in map(sub, counts, (0.0, *counts))]
    if min(per_bucket) < 0 or sum(per_bucket) != count:
        return np.full(min(count, ENDED), total / count)
    if count > ENDED:
        per_bucket = [int(share * (ENDED / count)) for share in per_bucket]
        total *= sum(per_bucket) / count
    lowest, highest = _edges(now.bounds)
    low, high = np.repeat(lowest, per_bucket), np.repeat(highest, per_bucket)
    return _fit_total(np.sqrt(low * high), low, high, total)


@lru_cache(maxsize=64)
def _edges(bounds: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Shortest and longest length of each bucket; of the last, whose bound is +Inf, four times the bound before."""
    upper = np.asarray(bounds)
    lower = np.concatenate(([0.0], upper[:-1]))
    return lower + 1.0, np.where(np.isfinite(upper), upper, np.maximum(4.0 * lower, lower + 1.0))


def _fit_total(lengths: Floats, low: Floats, high: Floats, total: float) -> Floats:
    """Move every length by the same share of the room its bucket leaves, until they add up."""
    missing = total - float(lengths.sum())
    room = (high - lengths) if missing > 0 else (lengths - low)
    available = float(room.sum())
    if available <= 0:
        return lengths
    moved: Floats = lengths + min(1.0, abs(missing) / available) * np.sign(missing) * room
    return moved


@dataclass(frozen=True, slots=True)
class Ended:
    """Requests that ended between two readings: what they generated and what their prompts were, in tokens.

    Each array is empty where the page does not tell; they need not be of one length, nor in one order.
    """

    outputs: Floats
    prompts: Floats

    @classmethod
    def between(cls, before: EngineReading | None, now: EngineReading) -> Self:
        """All that ever ended, without `before`."""

        def of(name: Literal["generation_lengths", "prompt_lengths"]) -> Floats:
            told: Histogram | None = getattr(now, name)
            return np.empty(0) if told is None else newly_finished(getattr(before, name, None), told)

        return cls(of("generation_lengths"), of("prompt_lengths"))


def evenly(lengths: Floats, most: int = 1500) -> Floats:
    """At most so many of the lengths of a histogram, which stand in order of its buckets: the last are the longest."""
    if len(lengths) <= most:
        return lengths
    picked: Floats = lengths[np.linspace(0, len(lengths) - 1, most).round().astype(np.intp)]
    return picked


@dataclass(frozen=True, slots=True)
class Allowed:
    """What clients let a request generate, by `request_params_max_tokens` of those that finished; unknown is +inf."""

    mean: float = math.inf
    most: float = math.inf


def allowed(max_tokens: Histogram | None) -> Allowed:
    """The mean, and the bound of the highest bucket in use once enough have finished to speak for the others."""
    if max_tokens is None or max_tokens.count <= 0:
        return Allowed()
    mean = max_tokens.sum / max_tokens.count
    if max_tokens.count < FEW_SURVIVORS or not max_tokens.bounds:
        return Allowed(mean)
    reached = (b for b, n in zip(max_tokens.bounds, max_tokens.counts, strict=True) if n >= max_tokens.count)
    return Allowed(mean, next(reached, math.inf))


class LengthSample:
    """The lengths of the last `keep` finished requests, as an empirical distribution."""

    def __init__(self, keep: int = 1500) -> None:
        """`keep` bounds memory and follows a load that changes."""
        self._ring = np.zeros(keep)
        self._next = 0
        self.total = 0
        self._sorted: Floats | None = None
        self._mean: float | None = None

    def add(self, lengths: Floats) -> None:
        """Take newly finished requests, oldest first."""
        for length in lengths[-len(self._ring) :]:
            self._ring[self._next] = length
            self._next = (self._next + 1) % len(self._ring)
        self.total += len(lengths)
        if len(lengths):
            self._sorted = self._mean = None

    @property
    def size(self) -> int:
        """How many lengths the distribution rests on."""
        return min(self.total, len(self._ring))

    @property
    def newest(self) -> Floats:
        """The lengths in order of finishing, oldest first."""
        if self.total < len(self._ring):
            return self._ring[: self.total]
        return np.roll(self._ring, -self._next)

    @property
    def sorted(self) -> Floats:
        """The lengths in rising order."""
        if self._sorted is None:
            self._sorted = np.sort(self._ring[: self.size])
        return self._sorted

    def mean(self) -> float | None:
        """Mean length in tokens; `None` before anything finished."""
        if self._mean is None and self.size:
            self._mean = float(np.add.reduce(self._ring[: self.size])) / self.size
        return self._mean

    def draw(self, uniform: Floats, memory: Floats, count: NDArray[np.intp]) -> Floats:
        """Lengths from the newest ones.

        Args:
            uniform: (E,) numbers in 0..1, one draw each, for R roll-outs one after the other.
            memory: (R,) how many of the newest lengths each roll-out draws from; more than there are is all.
            count: (R,) how many draws each roll-out has.
        """
        back = (uniform * np.repeat(np.minimum(memory, self.size), count)).astype(np.intp)
        found: Floats = self.newest[::-1].take(back)
        return found

    def draw_whole(self, uniform: Floats, exponent: float, limit: float) -> Floats:
        """(E,) lengths of requests that have yet to begin.

        Args:
            uniform: (E,) numbers in 0..1, one draw each: 0 is the longest.
            exponent: Of `uniform`, before it is used; below 1 makes short ones frequent.
            limit: No request grows past this length.
        """
        middle = (np.arange(self.size) + 0.5) / self.size
        rank = self.size - 1 - (middle**exponent * self.size).astype(np.intp)
        lengths = np.minimum(np.maximum(self.sorted[rank], 1.0), max(limit, 1.0))
        found: Floats = lengths.take((uniform * self.size).astype(np.intp))
        return found

    def hazard(self, age: Floats) -> Floats:
        """(N,) up to each age in tokens, cumulated: −ln of the share of requests that grew longer, then Pareto's."""
        survivors = self.size - np.searchsorted(self.sorted, age, side="right")
        longest = max(1.0, float(self.sorted[-1])) if self.size else 1.0
        within = -np.log((survivors + 0.5) / (self.size + 0.5))
        grown: Floats = within + PARETO_SHAPE * np.log(np.maximum(age / longest, 1.0))
        return grown

    def draw_beyond(self, age: Floats, uniform: Floats, limit: float) -> Floats:
        """Total lengths of requests known to have produced `age` tokens already.

        Args:
            age: (N,) tokens generated so far.
            uniform: (R, N) numbers in 0..1, one draw each.
            limit: No request grows past this length.

        Returns:
            (R, N) lengths > age. With fewer than `FEW_SURVIVORS` finished requests beyond an age, the
            draws are a mixture with a Pareto tail, P(L > l | L > a) = (a / l)^shape.
        """
        survivors = self.size - np.searchsorted(self.sorted, age, side="right")
        weight = FEW_SURVIVORS / 2
        from_sample = survivors / (survivors + np.where(survivors < FEW_SURVIVORS, weight, 0.0) + 1e-12)
        rank = self.size - 1 - (uniform / np.maximum(from_sample, 1e-12) * survivors).astype(np.intp)
        found = self.sorted[np.clip(rank, 0, self.size - 1)] if self.size else np.zeros_like(uniform)
        few = np.flatnonzero(survivors < FEW_SURVIVORS)
        if len(few):
            at, share = uniform[..., few], from_sample[few]
            rest = np.clip((at - share) / np.maximum(1.0 - share, 1e-12), 0.0, 1.0 - 1e-9)
            tail = np.maximum(age[few], 1.0) * (1.0 - rest) ** (-1.0 / PARETO_SHAPE)
            found[..., few] = np.where(at < share, found[..., few], tail)
        return np.minimum(np.maximum(found, age + 1.0), np.maximum(limit, age + 1.0))
