"""Which load drives the risk."""

from exporter.forecast.assessment import Driver
from exporter.forecast.window import Window
from exporter.reading import EngineReading

CLEAR_GROWTH = 1.25
"""A factor of growth over the slow level below which neither requests nor lengths count as grown."""


def driver_of(window: Window, usable_tokens: float) -> Driver:
    """Compare the last 20 s with the last 5 minutes: requests, tokens per request, prompt tokens admitted."""
    recent, past = window.since(20.0), window.since(300.0)
    last = window.last
    if last is None or len(past) < 3:
        return "none"
    requests = _ratio(_mean_requests(recent), _mean_requests(past))
    lengths = _ratio(_tokens_per_request(recent), _tokens_per_request(past))
    admitted = window.rise("prompt_tokens", 10.0)
    if admitted is not None and usable_tokens > 0 and admitted[0] > 0.3 * usable_tokens:
        return "prefill_spike"
    if lengths > CLEAR_GROWTH and lengths > requests:
        return "long_context"
    if requests > CLEAR_GROWTH:
        return "burst_concurrency"
    return "mixed" if (last.kv_usage or 0.0) > 0.5 else "none"


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else 1.0


def _mean_requests(readings: list[EngineReading]) -> float:
    return sum((r.running or 0.0) + (r.waiting or 0.0) for r in readings) / max(1, len(readings))


def _tokens_per_request(readings: list[EngineReading]) -> float:
    running = sum(r.running or 0.0 for r in readings)
    return sum(r.kv_usage or 0.0 for r in readings) / running if running else 0.0
