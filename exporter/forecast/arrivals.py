"""Arrivals of requests: how many came, how unevenly, and continuations into the future.

The future of arrivals is continued by analogues: moments of this engine's own past whose recent rates
resembled the present ones, each followed by what then really came. That keeps the burst structure (how long
a burst lasts, how fast it builds, what a ramp does next) without a model of it. Until there is enough past,
and always for a part of the futures, a Poisson process with an uncertain rate takes its place.
"""

import numpy as np
from numpy.typing import NDArray

from exporter.forecast.bounds import COMING
from exporter.forecast.coming import Counts
from exporter.forecast.lengths import Floats
from exporter.reading import EngineReading

BIN_SECONDS = 1.0
HALF_LIVES = (4.0, 15.0, 60.0, 300.0)
"""Seconds; the rates that describe a moment, from the last few arrivals to the level of the last minutes."""
HISTORY_SECONDS = 7200
FIRST_BINS = 64
ANALOGUE_PRIOR_SECONDS = 900.0
"""With this much past, half of the futures are analogues."""
PARAMETRIC_SHARE = 0.25
"""Share of futures that stay with the uncertain rate, however long the past: what never happened yet can."""
TREND_HALF_LIVES = (15.0, 60.0)
TREND_SECONDS = 10.0
"""How far ahead of now a trend is believed to go on."""
TREND_MOST = 3.0
"""Times the rate of the last quarter of a minute."""


def arrived_in_total(reading: EngineReading) -> float | None:
    """Requests that ever arrived, up to a constant: finished, running and waiting ones."""
    if reading.finished is None or reading.running is None:
        return None
    return reading.finished + reading.running + (reading.waiting or 0.0)


class Arrivals:
    """Counts of arrivals on bins of one second, the last two hours of them."""

    def __init__(self) -> None:
        """Start without a past."""
        self._counts = np.zeros(FIRST_BINS)
        self._marks = np.zeros((FIRST_BINS, len(HALF_LIVES)))
        self._filled = 0
        self._rates = np.zeros(len(HALF_LIVES))
        self._weight = np.zeros(len(HALF_LIVES))
        self._carry = 0.0

    def observe(self, seconds: float, count: float) -> None:
        """`count` requests came in the last `seconds`; spread over the whole bins that passed."""
        self._carry += seconds / BIN_SECONDS
        bins = int(self._carry + 0.5)
        self._carry -= bins
        decay = 0.5 ** (seconds / np.array(HALF_LIVES))
        self._rates = self._rates * decay + (1.0 - decay) * max(0.0, count) / max(seconds, 1e-9)
        self._weight = self._weight * decay + (1.0 - decay)
        for k in range(bins):
            share = round(count * (k + 1) / bins) - round(count * k / bins)
            if self._filled == len(self._counts) < HISTORY_SECONDS:
                self._grow(min(2 * self._filled, HISTORY_SECONDS))
            if self._filled == HISTORY_SECONDS:
                self._counts[:-1], self._marks[:-1] = self._counts[1:], self._marks[1:]
                self._filled -= 1
            self._counts[self._filled] = max(0.0, share)
            self._marks[self._filled] = self._mark()
            self._filled += 1

    def _grow(self, bins: int) -> None:
        """Room for so many bins: an engine that is gone after minutes must not take the memory of hours."""
        more = bins - len(self._counts)
        self._counts = np.concatenate((self._counts, np.zeros(more)))
        self._marks = np.concatenate((self._marks, np.zeros((more, len(HALF_LIVES)))))

    def _mark(self) -> Floats:
        return np.sqrt(np.maximum(0.0, self.rates()))

    def rates(self) -> Floats:
        """Arrivals per second at each half-life."""
        rates: Floats = self._rates / np.maximum(self._weight, 1e-9)
        return rates

    def trend(self) -> float:
        """Arrivals per second a little ahead, if they go on growing or falling as they have.

        A rate that grows as exp(g·t) has a mean, forgetting at λ, of λ / (λ + g) of it: two means tell g, and the rate.
        """
        rates = self.rates()
        quick, slow = (float(rates[HALF_LIVES.index(half_life)]) for half_life in TREND_HALF_LIVES)
        if quick <= 0 or slow <= 0:
            return quick
        forget, remember = (np.log(2.0) / half_life for half_life in TREND_HALF_LIVES)
        ratio = min(TREND_MOST, quick / slow)
        growth = remember * (ratio - 1.0) / (1.0 - ratio * remember / forget)
        now = quick * (1.0 + growth / forget)
        return float(np.clip(now * np.exp(growth * TREND_SECONDS), 0.0, TREND_MOST * quick))

    @property
    def rate_of_a_minute(self) -> float:
        """Arrivals per second at the half-life of a minute."""
        return float(self.rates()[HALF_LIVES.index(60.0)])

    @property
    def seconds(self) -> float:
        """How long the past is."""
        return self._filled * BIN_SECONDS

    def continuations(self, random: np.random.Generator, rollouts: int, horizon: float) -> tuple[Floats, Counts]:
        """Arrivals in seconds from now, rising in each roll-out, one's after the other's; and (R,) how many each has.

        The roll-outs that continue by analogues come last.
        """
        bins = int(np.ceil(horizon / BIN_SECONDS))
        past = self._filled - bins
        trust = (1.0 - PARAMETRIC_SHARE) * max(0, past) / (max(0, past) + ANALOGUE_PRIOR_SECONDS)
        analogues = int(random.binomial(rollouts, trust))
        counts = self._parametric(random, rollouts - analogues, bins * BIN_SECONDS)
        alike = np.empty((0, bins))
        if analogues:
            alike = self._counts[self._similar(random, analogues, past)[:, None] + 1 + np.arange(bins)]
        most = max(counts.max(initial=0.0), alike.sum(axis=1).max(initial=0.0))
        if most > COMING:  # so many that the pool is full at once, with or without those beyond the bound
            counts, alike = np.floor(counts * (COMING / most)), np.floor(alike * (COMING / most))
        return _times(random, counts.astype(np.intp), alike.astype(np.intp))

    def _parametric(self, random: np.random.Generator, rollouts: int, seconds: float) -> Floats:
        """How many come within `seconds`, at a rate between fast and slow ones, log-normal, drawn once per future."""
        rates = np.append(self.rates(), self.trend())
        mix = random.dirichlet(np.ones(len(rates)), rollouts) @ rates
        rate = np.maximum(mix, 0.3 / 60.0) * np.exp(0.25 * random.standard_normal(rollouts))
        counts: Floats = random.poisson(np.minimum(rate * seconds, float(COMING))).astype(np.float64)
        return counts

    def _similar(self, random: np.random.Generator, number: int, past: int) -> NDArray[np.intp]:
        """Bins of the past after which to continue, drawn by the likeness of their rates to the present.

        Square roots of rates have a like spread at every level (Anscombe); at half-life h a Poisson rate's
        estimate has standard deviation √(ln 2 / h) / 2 on that scale, and likeness is measured in that unit.
        """
        unit = np.sqrt(np.log(2.0) / np.array(HALF_LIVES)) / 2.0 + 0.05
        away = (((self._marks[:past] - self._mark()) / unit) ** 2).sum(axis=1)
        weight = np.exp(-0.25 * (away - away.min()))
        total = np.cumsum(weight)
        found: NDArray[np.intp] = np.searchsorted(total, random.random(number) * total[-1])
        return found


def _times(random: np.random.Generator, counts: Counts, alike: Counts) -> tuple[Floats, Counts]:
    """Times of `counts` (P,) arrivals, even over all bins, and after them those of `alike` (A, bins), even within each.

    Every roll-out has a stretch of its own on one axis, so that all are sorted together. Also how many each has.
    """
    bins = alike.shape[1]
    stretch = np.repeat(np.arange(len(counts)), counts)
    of_bin = np.repeat(np.arange(alike.size) + len(counts) * bins, alike.ravel())
    draws = random.random(len(stretch) + len(of_bin))
    times = np.concatenate(((stretch + draws[: len(stretch)]) * bins, of_bin + draws[len(stretch) :]))
    times.sort()
    count = np.concatenate((counts, alike.sum(axis=1)))
    times -= np.repeat(np.arange(len(count)) * bins, count)
    return times * BIN_SECONDS, count
