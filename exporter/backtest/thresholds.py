"""The alerts people have today, on the same readings as the forecast."""

import math
from collections.abc import Callable, Sequence

from exporter.backtest.scoring import Point
from exporter.reading import EngineReading

USAGE_LOGIT = (-4.76, 5.47)
"""P(preemption within 60 s) as a logistic of usage, fitted on all kinds of load: a threshold made fair."""
ALERT_SCRAPE_SECONDS, ALERT_FOR_SECONDS = 15.0, 60.0

Detector = Callable[[Sequence[EngineReading]], list[Point]]


def usage_above(threshold: float) -> Detector:
    """An alert on every reading whose usage is above `threshold`."""

    def detect(readings: Sequence[EngineReading]) -> list[Point]:
        a, b = USAGE_LOGIT
        usages = [(r.time, r.kv_usage or 0.0) for r in readings]
        return [(time, 1 / (1 + math.exp(-(a + b * usage))), usage > threshold) for time, usage in usages]

    return detect


def alert_of_today(readings: Sequence[EngineReading]) -> list[Point]:
    """Usage above 0.9, read every 15 s, `for: 1m`."""
    found: list[Point] = []
    scraped, due, since = 0.0, -math.inf, None
    for reading in readings:
        if reading.time >= due - 1e-6:
            scraped, due = reading.kv_usage or 0.0, reading.time + ALERT_SCRAPE_SECONDS
            since = (reading.time if since is None else since) if scraped > 0.9 else None
        alarm = since is not None and reading.time - since >= ALERT_FOR_SECONDS
        found.append((reading.time, scraped, alarm))
    return found


DETECTORS: dict[str, Detector] = {
    "usage > 0.9, 15 s, for 1m": alert_of_today,
    "usage > 0.8, every reading": usage_above(0.8),
    "usage > 0.9, every reading": usage_above(0.9),
}
