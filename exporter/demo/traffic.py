"""Traffic for the embedded engine: seeded scenarios that show how a pool of KV blocks runs out, and how it does not.

Rates are per second and lengths in tokens; both are sized for the default engine, whose pool holds 41,392 tokens.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from exporter.demo.scheduler import Request
from exporter.errors import InputError

Rate = Callable[[float], float]
Shape = Callable[[np.random.Generator, float], Request]
"""Makes the request that arrives at a time."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests of one shape that arrive at a varying `rate`, never above `peak`."""

    rate: Rate
    peak: float
    shape: Shape

    def requests(self, rng: np.random.Generator) -> Iterator[Request]:
        """An endless Poisson process: the peak's arrivals, thinned to the rate."""
        now = 0.0
        while True:
            now += rng.exponential(1 / self.peak)
            if rng.random() * self.peak < self.rate(now):
                yield self.shape(rng, now)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens, and what to look at while it does."""

    name: str
    happens: str
    watch: str
    streams: tuple[Stream, ...]

    def requests(self, seed: int) -> Iterator[Request]:
        """The scenario's requests in order of arrival; the same seed gives the same ones."""
        seeds = np.random.SeedSequence(seed).spawn(len(self.streams))
        each = (stream.requests(np.random.default_rng(one)) for stream, one in zip(self.streams, seeds, strict=True))
        return heapq.merge(*each, key=lambda request: request.arrival)


def scenario(name: str) -> Scenario:
    """The scenario of that name; raises `InputError` naming those there are."""
    try:
        return SCENARIOS[name]
    except KeyError:
        raise InputError(f"--scenario {name!r}: must be one of {', '.join(SCENARIOS)}") from None


def _length(rng: np.random.Generator, median: float, spread: float, least: int, most: int) -> int:
    return int(min(most, max(least, rng.lognormal(math.log(median), spread))))


def _chat(rng: np.random.Generator, now: float) -> Request:
    """A turn of a chat: mean prompt about 440, mean answer about 260."""
    prompt, output = _length(rng, 320, 0.8, 8, 4000), _length(rng, 210, 0.65, 4, 1500)
    return Request(now, prompt, output)


def _assistant(rng: np.random.Generator, now: float) -> Request:
    """A chat behind one of three system prompts, which the live requests share."""
    system = int(rng.integers(3))
    prefix = 240 + 160 * system
    return Request(
        now,
        prefix + _length(rng, 180, 0.8, 8, 3000),
        _length(rng, 190, 0.65, 4, 1500),
        max_tokens=1024,
        prefix=f"system-{system}",
        prefix_tokens=prefix,
    )


def _document(rng: np.random.Generator, now: float) -> Request:
    """A question about a long document, answered at length."""
    return Request(now, _length(rng, 5200, 0.35, 3000, 12000), _length(rng, 520, 0.4, 64, 2000))


def _extraction(rng: np.random.Generator, now: float) -> Request:
    """A very long prompt with a short answer: nearly all prefill."""
    return Request(now, _length(rng, 7400, 0.2, 5000, 12000), _length(rng, 48, 0.5, 4, 200))


def _steady(rate: float) -> Rate:
    return lambda _: rate


def _pulses(rate: float, first: float, every: float, lasting: float) -> Rate:
    """`rate` for `lasting` seconds, first at `first` and then `every` so often; 0 between."""
    return lambda now: rate if now >= first and (now - first) % every < lasting else 0.0


def _ramp(low: float, high: float, seconds: float) -> Rate:
    return lambda now: low + (high - low) * min(1.0, now / seconds)


def _waves(mean: float, swing: float, period: float) -> Rate:
    return lambda now: mean + swing * math.sin(2 * math.pi * now / period)


SCENARIOS: Mapping[str, Scenario] = {
    one.name: one
    for one in (
        Scenario(
            "calm",
            "Steady chat that fills about a third of the pool.",
            "the alarm stays off and the probability stays near 0, however the usage wanders",
            (Stream(_steady(2.2), 2.2, _chat),),
        ),
        Scenario(
            "long-context",
            "Steady chat; from second 30 on, questions about long documents join it.",
            "tokens per request climb while the number of requests does not; the driver turns to long_context",
            (Stream(_steady(1.4), 1.4, _chat), Stream(_pulses(0.2, 30, 150, 75), 0.2, _document)),
        ),
        Scenario(
            "burst",
            "Steady chat; at second 45 and every 105 s after, three times as many requests for 25 s.",
            "running and waiting jump, the probability follows within seconds, preemptions come later",
            (Stream(_steady(1.8), 1.8, _chat), Stream(_pulses(4, 45, 105, 25), 4, _chat)),
        ),
        Scenario(
            "prefill-spike",
            "Steady chat; at second 25 and every 60 s after, a handful of very long prompts with short answers.",
            "the pool fills in steps of a whole prompt within seconds and empties as fast",
            (Stream(_steady(2.4), 2.4, _chat), Stream(_pulses(1.5, 25, 60, 4), 1.5, _extraction)),
        ),
        Scenario(
            "mixed",
            "Chats with shared system prompts in slow waves, documents now and then, short bursts.",
            "shared prefixes are counted once; the driver changes with what is rising",
            (
                Stream(_waves(3.2, 1.6, 180), 4.8, _assistant),
                Stream(_steady(0.05), 0.05, _document),
                Stream(_pulses(8, 70, 110, 4), 8, _assistant),
            ),
        ),
        Scenario(
            "overload",
            "Chat that grows for 120 s to more than the pool can hold, and stays there.",
            "offered load passes 1 before the pool is full; from then on preemptions are a matter of time",
            (Stream(_ramp(2.0, 5.5, 120), 5.5, _chat),),
        ),
    )
}
