"""Arrivals of requests: how many came, how unevenly, and continuations into the future.

The future of arrivals is continued by analogues: moments of this engine's own past whose recent rates
resembled the present ones, each followed by what then really came. That keeps the burst structure (how long
a burst lasts, how fast it builds, what a ramp does next) without a model of it. Until there is enough past,
and always for a part of the futures, a Poisson process with an uncertain rate takes its place.
"""

import numpy as np
from numpy.typing import NDArray

from exporter.forecast.bounds import COMING
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

    def continuations(self, random: np.random.Generator, rollouts: int, horizon: float) -> Floats:
        """(rollouts, K) arrival times in seconds from now, rising along each row; +inf fills short rows."""
        cells = int(np.ceil(horizon / BIN_SECONDS))
        past = self._filled - cells
        counts = self._parametric(random, rollouts, cells)
        trust = (1.0 - PARAMETRIC_SHARE) * max(0, past) / (max(0, past) + ANALOGUE_PRIOR_SECONDS)
        analogues = random.random(rollouts) < trust
        if analogues.any():
            starts = self._similar(random, int(analogues.sum()), past)
            counts[analogues] = self._counts[starts[:, None] + 1 + np.arange(cells)]
        most = max(1.0, float(counts.sum(axis=1).max()))
        # So many that the pool is full at once, with or without those beyond the bound.
        return _times(random, counts if most <= COMING else np.floor(counts * (COMING / most)))

    def _parametric(self, random: np.random.Generator, rollouts: int, cells: int) -> Floats:
        """A rate between fast and slow ones, log-normal, drawn once per future."""
        rates = np.append(self.rates(), self.trend())
        mix = random.dirichlet(np.ones(len(rates)), rollouts) @ rates
        rate = np.maximum(mix, 0.3 / 60.0) * np.exp(0.25 * random.standard_normal(rollouts))
        each = np.minimum(rate[:, None] * BIN_SECONDS, float(COMING))
        return random.poisson(np.broadcast_to(each, (rollouts, cells))).astype(np.float64)

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


def _times(random: np.random.Generator, counts: Floats) -> Floats:
    """(R, K) times of `counts` (R, cells) arrivals, uniform inside their cells."""
    per_row = counts.sum(axis=1).astype(np.intp)
    width = max(1, int(per_row.max()))
    times = np.full((len(counts), width), np.inf)
    cell = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel().astype(np.intp))
    times[np.arange(width) < per_row[:, None]] = (cell + random.random(len(cell))) * BIN_SECONDS
    times.sort(axis=1)
    return times
