"""Which load drives the risk: what grew against the minutes before.

Demand is requests × tokens per request. The last seconds are compared with the five minutes before them; a
prefill spike shows as a jump of usage within seconds by requests that take several times the usual prompt each.
"""

from dataclasses import dataclass

from exporter.forecast.assessment import Driver
from exporter.reading import EngineReading

RECENT_SECONDS = 10.0
BASELINE_SECONDS = (60.0, 330.0)
"""How long ago the minutes are that the present is compared with."""
SPIKE_SECONDS = 16.0
JUMP_SECONDS = (3.0, 8.5)
"""How far apart two readings are between which usage may jump."""
JUMP_OF_USAGE = 0.25
MANY_TIMES = 3.0
"""Requests that grew so much explain the demand whatever else grew."""
MORE_REQUESTS = 2.2
LONGER_PROMPTS = 2.3
MORE_TOKENS = 1.2


@dataclass(frozen=True, slots=True)
class Growth:
    """Present over baseline: requests, KV per running request, tokens that a jump's newcomers took; and that jump."""

    requests: float
    tokens: float
    prompts: float
    jump: float


def driver_of(readings: list[EngineReading], pool_tokens: float, max_num_seqs: float | None) -> Driver:
    """The driver at the last of `readings` (oldest first, the last six minutes) in a pool of `pool_tokens`."""
    if not readings:
        return "none"
    last = readings[-1]
    if max_num_seqs is not None and last.waiting and last.running is not None and last.running >= max_num_seqs:
        return "sequence_cap"
    growth = growth_of(readings, pool_tokens)
    if growth is None:
        return "mixed"
    if growth.requests >= MANY_TIMES:
        return "burst_concurrency"
    if growth.prompts >= LONGER_PROMPTS and growth.jump >= JUMP_OF_USAGE:
        return "prefill_spike"
    if growth.requests >= MORE_REQUESTS:
        return "burst_concurrency"
    return "long_context" if growth.tokens >= MORE_TOKENS else "mixed"


def growth_of(readings: list[EngineReading], pool_tokens: float) -> Growth | None:
    """How the present differs from the baseline; `None` without a baseline."""
    now = readings[-1].time
    recent = [r for r in readings if now - r.time <= RECENT_SECONDS]
    nearest, farthest = BASELINE_SECONDS
    baseline = [r for r in readings if nearest <= now - r.time <= farthest]
    if len(baseline) < 2 or not recent:
        return None
    before = _prompt(baseline[0], baseline[-1])
    jump, taken = _jump([r for r in readings if now - r.time <= SPIKE_SECONDS], pool_tokens)
    return Growth(
        requests=_requests(recent) / max(0.5, _requests(baseline)),
        tokens=_usage_per_request(recent) / max(1e-9, _usage_per_request(baseline)),
        prompts=taken / before if before else 0.0,
        jump=jump,
    )


def _jump(readings: list[EngineReading], pool_tokens: float) -> tuple[float, float]:
    """The highest rise of usage within seconds, and the most tokens per newcomer of any rise that counts as a jump."""
    highest, taken = 0.0, 0.0
    shortest, longest = JUMP_SECONDS
    for k, later in enumerate(readings):
        for earlier in readings[:k]:
            rose = (later.kv_usage or 0.0) - (earlier.kv_usage or 0.0)
            if rose < JUMP_OF_USAGE or not shortest <= later.time - earlier.time <= longest:
                continue
            newcomers = (later.running or 0.0) - (earlier.running or 0.0)
            newcomers += (later.finished or 0.0) - (earlier.finished or 0.0)
            highest, taken = max(highest, rose), max(taken, rose * pool_tokens / max(1.0, newcomers))
    return highest, taken


def _prompt(a: EngineReading, b: EngineReading) -> float | None:
    """Mean prompt of the sequences that left prefill between two readings, in tokens."""
    if a.first_tokens is None or b.first_tokens is None or a.prompt_tokens is None or b.prompt_tokens is None:
        return None
    born = b.first_tokens.count - a.first_tokens.count
    return (b.prompt_tokens - a.prompt_tokens) / born if born > 0 else None


def _requests(readings: list[EngineReading]) -> float:
    return sum((r.running or 0.0) + (r.waiting or 0.0) for r in readings) / len(readings)


def _usage_per_request(readings: list[EngineReading]) -> float:
    running = sum(r.running or 0.0 for r in readings)
    return sum(r.kv_usage or 0.0 for r in readings) / running if running else 0.0
