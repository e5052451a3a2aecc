"""From a room that shrinks to a probability, and from readings that waver to states that do not."""

from math import erf, sqrt

from exporter.forecast.trend import Trend


def chance(room: float, trend: Trend | None, horizon: float) -> float:
    """P(the room is gone within `horizon` seconds), the use of it being a straight line with normal errors.

    The spread at the horizon is that of the values around the line together with that of the slope; the slope's own
    error is doubled, since neighbouring readings are not independent. That the climb goes on for as long as it takes
    has the chance span / (span + time it takes): what has lasted ten minutes may be over in ten.
    """
    if room <= 0:
        return 1.0
    if trend is None or trend.slope <= 0:
        return 0.0
    mean = room - trend.slope * horizon
    spread = sqrt(trend.noise**2 + (2 * trend.slope_error * horizon) ** 2)
    arrives = 0.5 * (1 - erf(mean / spread / sqrt(2))) if spread else float(mean <= 0)
    needed = min(horizon, room / trend.slope)
    return arrives * trend.span_seconds / (trend.span_seconds + needed)


def either(*chances: float) -> float:
    """P(at least one of independent events)."""
    none = 1.0
    for one in chances:
        none *= 1 - one
    return 1 - none


def seconds_until(room: float, trend: Trend | None) -> float | None:
    """Expected seconds until the room is gone; 0 where it is, `None` where nothing is in sight."""
    if room <= 0:
        return 0.0
    return room / trend.slope if trend is not None and trend.slope > 0 else None


class Latch:
    """An alarm with hysteresis: on at `enter`, off after `hold_seconds` without a value of `leave` or more."""

    def __init__(self, enter: float = 0.5, leave: float = 0.25, hold_seconds: float = 60.0) -> None:
        self._enter = enter
        self._leave = leave
        self._hold_seconds = hold_seconds
        self._on = False
        self._last_high = float("-inf")

    def update(self, time: float, probability: float) -> bool:
        """The alarm after this reading."""
        if probability >= self._leave:
            self._last_high = time
        if probability >= self._enter:
            self._on = True
        elif self._on and probability < self._leave and time - self._last_high >= self._hold_seconds:
            self._on = False
        return self._on


class Uptime:
    """Whether a server counts as up: a page that is late under load, for less than `grace_seconds`, is no restart."""

    def __init__(self, grace_seconds: float = 60.0) -> None:
        self._grace_seconds = grace_seconds
        self._last_up: float | None = None

    def update(self, time: float, serving: bool) -> bool:
        """Take what was seen at `time`."""
        if serving:
            self._last_up = time
        return self._last_up is not None and time - self._last_up < self._grace_seconds
