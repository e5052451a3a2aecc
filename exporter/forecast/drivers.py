"""Which load drives the risk: what grew against the minutes before.

Demand is requests × tokens per request. The last seconds are compared with the five minutes before them; a
prefill spike shows as prompts several times longer than before together with a jump of usage within seconds.
"""

from dataclasses import dataclass

from exporter.forecast.assessment import Driver
from exporter.reading import EngineReading

RECENT_SECONDS = 10.0
SPIKE_SECONDS = 30.0
BASELINE_SECONDS = (60.0, 330.0)
"""How long ago the minutes are that the present is compared with."""
MANY_TIMES = 3.0
"""Requests that grew so much explain the demand whatever else grew."""
MORE_REQUESTS = 2.2
LONGER_PROMPTS = 2.3
JUMP_SECONDS = 8.0
JUMP_OF_USAGE = 0.25
MORE_TOKENS = 1.2


@dataclass(frozen=True, slots=True)
class Growth:
    """Present over baseline: requests, KV per running request, longest prompts; and the highest jump of usage."""

    requests: float
    tokens: float
    prompts: float
    jump: float


def driver_of(readings: list[EngineReading], max_num_seqs: float | None) -> Driver:
    """The driver at the last of `readings` (oldest first, the last six minutes)."""
    if not readings:
        return "none"
    last = readings[-1]
    if max_num_seqs is not None and last.waiting and last.running is not None and last.running >= max_num_seqs:
        return "sequence_cap"
    growth = growth_of(readings)
    if growth is None:
        return "mixed"
    if growth.requests >= MANY_TIMES:
        return "burst_concurrency"
    if growth.prompts >= LONGER_PROMPTS and growth.jump >= JUMP_OF_USAGE:
        return "prefill_spike"
    if growth.requests >= MORE_REQUESTS:
        return "burst_concurrency"
    return "long_context" if growth.tokens >= MORE_TOKENS else "mixed"


def growth_of(readings: list[EngineReading]) -> Growth | None:
    """How the present differs from the baseline; `None` without a baseline."""
    now = readings[-1].time
    recent = [r for r in readings if now - r.time <= RECENT_SECONDS]
    nearest, farthest = BASELINE_SECONDS
    baseline = [r for r in readings if nearest <= now - r.time <= farthest]
    if len(baseline) < 2 or not recent:
        return None
    before = _prompt(baseline[0], baseline[-1])
    spike = [r for r in readings if now - r.time <= SPIKE_SECONDS + JUMP_SECONDS]
    pairs = [(a, b) for a, b in _apart(spike, JUMP_SECONDS)]
    longest = max((_prompt(a, b) or 0.0 for a, b in pairs), default=0.0)
    jump = max(((b.kv_usage or 0.0) - (a.kv_usage or 0.0) for a, b in pairs), default=0.0)
    return Growth(
        requests=_requests(recent) / max(0.5, _requests(baseline)),
        tokens=_usage_per_request(recent) / max(1e-9, _usage_per_request(baseline)),
        prompts=longest / before if before else 0.0,
        jump=jump,
    )


def _apart(readings: list[EngineReading], seconds: float) -> list[tuple[EngineReading, EngineReading]]:
    """Pairs of readings about `seconds` apart, or neighbours where readings are rarer than that."""
    pairs, first = [], 0
    for k, reading in enumerate(readings[1:], 1):
        while first + 1 < k and reading.time - readings[first].time > seconds:
            first += 1
        pairs.append((readings[first], reading))
    return pairs


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
