"""What preemption costs: how often it happens, per finished request, and the tokens computed again."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.forecast.evicted import recomputed_each
from exporter.forecast.window import Window
from exporter.reading import EngineReading

TOLL_SECONDS = 60.0
BALANCE_SECONDS = 400.0
"""How far back to look for a moment at which nobody waited."""


@dataclass(frozen=True, slots=True)
class Toll:
    """Over the last minute; `None` = not to be known yet."""

    preemptions_per_second: float | None = None
    preemptions_per_finished_request: float | None = None
    recomputed_tokens_per_second: float | None = None


def toll_of(window: Window) -> Toll:
    """Preemptions for want of KV alone where the page tells reasons apart, all of them otherwise."""
    readings = window.since(TOLL_SECONDS)
    if len(readings) < 2:
        return Toll()
    first, last = readings[0], readings[-1]
    seconds = last.time - first.time
    by_reason = last.preemptions_kv_full is not None and first.preemptions_kv_full is not None
    rose = _rise(first, last, "preemptions_kv_full" if by_reason else "preemptions")
    finished = _rise(first, last, "finished")
    if rose is None or seconds <= 0:
        return Toll()
    return Toll(
        preemptions_per_second=rose / seconds,
        preemptions_per_finished_request=rose / finished if finished else None,
        recomputed_tokens_per_second=_recomputed(window.since(BALANCE_SECONDS), rose / seconds) if rose else 0.0,
    )


def _rise(first: EngineReading, last: EngineReading, counter: str) -> float | None:
    a, b = getattr(first, counter), getattr(last, counter)
    return None if a is None or b is None else float(b - a)


def _recomputed(readings: Sequence[EngineReading], rate: float) -> float | None:
    """Estimated; where no preempted request was seen to wait, by the victim's prompt: it was the last one admitted."""
    each = recomputed_each(readings, TOLL_SECONDS)
    prompts = readings[-1].prompt_lengths
    if each is None and prompts is not None and prompts.count > 0:
        each = prompts.sum / prompts.count
    return None if each is None else rate * each
