"""Requests that will come, in many roll-outs at once: one roll-out's after the other's, without gaps.

Roll-outs differ in how many requests they see. A matrix with a row for each would be filled up to the longest, and
every step of the arithmetic would be paid for what never comes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from exporter.forecast.lengths import Floats

Counts = NDArray[np.intp]
Number = TypeVar("Number", Floats, Counts)


@dataclass(frozen=True, slots=True)
class Coming:
    """E requests of R roll-outs, in order of arrival within each.

    count: (R,) how many each roll-out has.     arrival: (E,) seconds from now; waiting ones come first, at 0.
    prompt, output: (E,) tokens.
    """

    count: Counts
    arrival: Floats
    prompt: Floats
    output: Floats

    @property
    def begin(self) -> Counts:
        """(R,) where each roll-out's requests begin."""
        found: Counts = np.cumsum(self.count) - self.count
        return found

    def each(self, values: Number) -> Number:
        """(E,) every request's value, of its roll-out's `values` (R,)."""
        found: Number = np.repeat(values, self.count)
        return found

    def totals(self, values: Floats) -> tuple[Floats, Floats]:
        """(E,) sums of the `values` (E,) of all requests before each, whatever their roll-outs; (R,) of roll-outs."""
        so_far = np.cumsum(values)
        by_rollout = np.concatenate(((0.0,), so_far)).take(np.cumsum(self.count))
        return so_far - values, np.diff(by_rollout, prepend=0.0)

    def only(self, kept: NDArray[np.bool_]) -> Self:
        """Without the requests that are not `kept` (E,)."""
        count = self.totals(kept.astype(np.float64))[1].astype(np.intp)
        return type(self)(count, self.arrival[kept], self.prompt[kept], self.output[kept])

    def of(self, rollouts: Counts) -> Self:
        """Some of the roll-outs, by their numbers."""
        begin, count = self.begin[rollouts], self.count[rollouts]
        there = np.cumsum(count) - count
        who = np.arange(int(count.sum())) + np.repeat(begin - there, count)
        return type(self)(count, self.arrival[who], self.prompt[who], self.output[who])

    def parts(self, most: int) -> Iterator[Counts]:
        """Numbers of roll-outs, so many at a time that those behind the first have together `most` requests at most."""
        part = np.maximum(np.cumsum(self.count) - 1, 0) // most
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        for start, end in zip(starts, np.append(starts[1:], len(part)), strict=True):
            yield np.arange(start, end)

    def one_after_another(self, before: Floats, work: Floats, backlog: float) -> Floats:
        """(E,) seconds from now at which each request's turn comes.

        Args:
            before: (E,) seconds of work of all requests before each, as `totals` tells.
            work: (R,) seconds of work of each roll-out's requests.
            backlog: Seconds of work that come before all of them.

        Lindley's recursion, as a running maximum over all roll-outs at once: each is lifted above those before it.
        """
        so_far, longest = np.cumsum(work), float(self.arrival.max(initial=0.0))
        lift = so_far + longest * np.arange(1, len(work) + 1)
        own = before - self.each(so_far - work + lift - backlog)
        waited = self.arrival - own
        first = self.begin[self.count > 0]
        waited[first] = np.maximum(waited[first], lift[self.count > 0])
        start: Floats = np.maximum.accumulate(waited)
        start += own
        return start
