"""A slope that steps, spikes and warm-up do not fool.

Theil–Sen: the median of the slopes of all pairs of points. One step, whatever its size, leaves at least half of the
pairs on the same side of it, so the median stays that of the calm parts; spikes are outvoted. Several steps that have
stopped are told from a climb by the last quarter of the window, in which a climb still climbs.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MONOTONE = 0.6
"""Kendall's tau from which a series climbs; one step in the middle of a flat series reaches 0.5 at most."""
MONOTONE_SHORT = 0.75
"""The same below `SHORT_SECONDS`: a flat series whose last half climbs reaches it, and warm-up is over by then."""
SHORT_SECONDS = 1800.0
CONTINUES = 0.25
"""Share of the slope that the last quarter must keep, or the climb has stopped."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through a window. Units are those of the values; slopes are per second.

    `slope_error` is half the width of Sen's 68 % interval, `noise` the spread of the values around the line as a
    standard deviation, `tau` Kendall's rank correlation with time, `recent_slope` the slope of the last quarter.
    """

    slope: float
    slope_error: float
    recent_slope: float
    tau: float
    noise: float
    span_seconds: float

    @property
    def climbing(self) -> bool:
        """Whether the series rises steadily and has not stopped."""
        least = MONOTONE_SHORT if self.span_seconds < SHORT_SECONDS else MONOTONE
        return self.tau >= least and self.slope > 0 and self.recent_slope >= CONTINUES * self.slope


def fit(times: NDArray[np.float64], values: NDArray[np.float64]) -> Trend | None:
    """The trend of `values` over rising `times`; `None` below four points."""
    if len(times) < 4:
        return None
    slopes = _pair_slopes(times, values)
    slope = float(np.median(slopes))
    residuals = values - slope * times
    recent = -max(4, len(times) // 4)
    return Trend(
        slope=slope,
        slope_error=_half_width(slopes, len(times)),
        recent_slope=float(np.median(_pair_slopes(times[recent:], values[recent:]))),
        tau=float(np.mean(np.sign(slopes))),
        noise=1.4826 * float(np.median(np.abs(residuals - np.median(residuals)))),
        span_seconds=float(times[-1] - times[0]),
    )


class TrendWindow:
    """The last `span_seconds` of a series, one point for each `bucket_seconds`: the highest value in it."""

    def __init__(self, span_seconds: float = 3600.0, bucket_seconds: float = 30.0) -> None:
        self._bucket_seconds = bucket_seconds
        self._points: deque[tuple[float, float]] = deque(maxlen=int(span_seconds / bucket_seconds))
        self._bucket: int | None = None
        self._highest = 0.0
        self._fits: dict[float, Trend | None] = {}

    def add(self, time: float, value: float) -> None:
        """Take one value; times must not go back."""
        bucket = int(time // self._bucket_seconds)
        if self._bucket is not None and bucket != self._bucket:
            self._points.append((self._bucket * self._bucket_seconds, self._highest))
            self._fits = {}
        self._highest = value if bucket != self._bucket else max(self._highest, value)
        self._bucket = bucket

    def clear(self) -> None:
        """Forget everything: what comes next has nothing to do with what was."""
        self._points.clear()
        self._bucket = None
        self._fits = {}

    @property
    def span_seconds(self) -> float:
        """Seconds between the first and the last complete bucket."""
        return self._points[-1][0] - self._points[0][0] if self._points else 0.0

    def trend(self, span_seconds: float) -> Trend | None:
        """The trend of the last `span_seconds`; `None` until the window is that long. Computed once per bucket."""
        if self.span_seconds < span_seconds:
            return None
        if span_seconds not in self._fits:
            count = int(span_seconds / self._bucket_seconds) + 1
            points = np.array(list(self._points)[-count:], dtype=np.float64)
            self._fits[span_seconds] = fit(points[:, 0], points[:, 1])
        return self._fits[span_seconds]

    def climb(self, settle_seconds: float = 600.0) -> Trend | None:
        """The climb that is under way: over all that is known, else over the last `settle_seconds`; else `None`."""
        for span in (self.span_seconds, settle_seconds):
            if span >= settle_seconds and (trend := self.trend(span)) is not None and trend.climbing:
                return trend
        return None


def _pair_slopes(times: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    first, second = np.triu_indices(len(times), k=1)
    return np.asarray((values[second] - values[first]) / (times[second] - times[first]))


def _half_width(slopes: NDArray[np.float64], points: int) -> float:
    """Half the 68 % interval of the median slope, from the variance of Kendall's S (Sen 1968)."""
    spread = np.sqrt(points * (points - 1) * (2 * points + 5) / 18)
    share = min(0.5, float(spread) / len(slopes) / 2)
    low, high = np.quantile(slopes, [0.5 - share, 0.5 + share])
    return float(high - low) / 2
