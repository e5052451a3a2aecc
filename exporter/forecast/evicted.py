"""What a preempted request computes again, judged by the balance of what exists and what is held.

The page counts a prompt's tokens once, when it first leaves prefill: what is computed again is on no counter. But the
tokens of requests that have begun and not ended are known from counters and histograms, and so is what the pool holds;
what exists and is not held belongs to the requests that were preempted and wait.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from exporter.reading import EngineReading

PART_OF_WAIT = 0.4
"""Of the mean wait of the preempted, what the prefix cache feels: the last one is back soonest and gets the most from
it. Chosen on vLLM's scheduling of many loads, where the result is then within 10 % of the truth in most."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Requests that have begun and not ended beyond those that run, and their tokens beyond those that are held."""

    requests: float
    tokens: float
    computed: float
    """Tokens ever computed for the first time."""


def recomputed_each(readings: Sequence[EngineReading], seconds: float) -> float | None:
    """Tokens that one preemption of the last `seconds` made the engine compute again; `None` where nobody waits.

    `readings`: oldest first, and as far back as there are any: where nothing waited, nobody was preempted, and what is
    out of balance there (clients that hung up are never counted as ended) is so for another reason.
    """
    since = readings[-1].time - seconds
    recent = bisect_left(readings, since, key=lambda reading: reading.time)
    quiet = (_balance(reading) for reading in reversed(readings[:recent]) if not reading.waiting)
    base = next((balance for balance in quiet if balance is not None), None)
    waited: list[tuple[EngineReading, Balance]] = []
    for reading in readings[recent:]:
        balance = _balance(reading)
        if balance is None:
            continue
        if not reading.waiting:
            base = balance
        if base is not None:
            requests, tokens = balance.requests - base.requests, balance.tokens - base.tokens
            waited.append((reading, Balance(max(0.0, requests), max(0.0, tokens), balance.computed)))
    requests = sum(balance.requests for _, balance in waited)
    if not requests:
        return None
    each = sum(balance.tokens for _, balance in waited) / requests
    if readings[-1].cache is not None and readings[-1].cache.enable_prefix_caching is False:
        return each
    (first, before), (last, now) = waited[0], waited[-1]
    preempted = (last.preemptions or 0.0) - (first.preemptions or 0.0)
    if preempted <= 0:
        return each
    # Waiting, on average, by Little's law; the blocks they left are taken by what is computed meanwhile.
    taken = PART_OF_WAIT * (now.computed - before.computed) * requests / len(waited) / preempted
    return taken * (1.0 - exp(-each / taken)) if taken > 0 else 0.0


def _balance(reading: EngineReading) -> Balance | None:
    prompts, outputs, first, cache = (
        reading.prompt_lengths, reading.generation_lengths, reading.first_tokens, reading.cache
    )  # fmt: skip
    if prompts is None or outputs is None or first is None or cache is None or reading.kv_usage is None:
        return None
    if reading.prompt_tokens is None or reading.generation_tokens is None or reading.running is None:
        return None
    if not cache.kv_cache_size_tokens or not cache.num_gpu_blocks:
        return None
    # The last block of each is half empty, on average.
    empty = reading.running * cache.kv_cache_size_tokens / cache.num_gpu_blocks / 2
    held = max(0.0, reading.kv_usage * cache.kv_cache_size_tokens - empty)
    existing = reading.prompt_tokens - prompts.sum + reading.generation_tokens - outputs.sum
    return Balance(
        requests=first.count - outputs.count - reading.running,
        tokens=existing - held,
        computed=reading.prompt_tokens - (reading.prompt_tokens_cached or 0.0) + reading.generation_tokens,
    )
