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
        recomputed_tokens_per_second=_recomputed(first, last, seconds) if rose else 0.0,
    )


def _rise(first: EngineReading, last: EngineReading, counter: str) -> float | None:
    a, b = getattr(first, counter), getattr(last, counter)
    return None if a is None or b is None else float(b - a)


def _recomputed(first: EngineReading, last: EngineReading, seconds: float) -> float | None:
    """Tokens that went through the engine beyond generated ones and prompts: prefills done again.

    A prompt in prefill counts step by step here and at its end there, so that a chunk more or less is noise.
    """
    if first.iteration_tokens is None or last.iteration_tokens is None:
        return None
    generated, prompts = _rise(first, last, "generation_tokens"), _rise(first, last, "prompt_tokens")
    if generated is None or prompts is None:
        return None
    cached = _rise(first, last, "prompt_tokens_cached") or 0.0
    computed = last.iteration_tokens.sum - first.iteration_tokens.sum
    return max(0.0, computed - generated - (prompts - cached)) / seconds
