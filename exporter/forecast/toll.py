"""What preemption costs: how often it happens, per finished request, and the tokens computed again."""

from dataclasses import dataclass

from exporter.forecast.window import Window
from exporter.reading import EngineReading

TOLL_SECONDS = 60.0


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
        recomputed_tokens_per_second=_recomputed(last, rose / seconds),
    )


def _rise(first: EngineReading, last: EngineReading, counter: str) -> float | None:
    a, b = getattr(first, counter), getattr(last, counter)
    return None if a is None or b is None else float(b - a)


def _recomputed(reading: EngineReading, rate: float) -> float | None:
    """Estimated: the victim is the last admitted, so it holds its prompt and little more, and starts anew.

    The page counts a prompt's tokens once, when it first leaves prefill: what is computed again is on no counter.
    """
    prompts = reading.prompt_lengths
    if rate == 0.0:
        return 0.0
    return rate * prompts.sum / prompts.count if prompts is not None and prompts.count > 0 else None
