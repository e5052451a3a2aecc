"""Traffic that grows: who comes when, how long each is. Times are seconds since the traffic began."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests_vllm.load import Load

Rate = Callable[[float], float]
Lengths = Callable[[float, random.Random], tuple[int, int]]

USUAL_PROMPT, USUAL_OUTPUT = 250, 300


@dataclass(frozen=True, slots=True)
class Traffic:
    """Arrivals at `rate(t)` a second, at most `most`; each with the prompt and output tokens of `lengths(t, rng)`."""

    rate: Rate
    lengths: Lengths
    most: float

    def arrivals(self, seed: int) -> Iterator[tuple[float, int, int]]:
        """When, how long a prompt, how many tokens of output; without end."""
        rng = random.Random(seed)
        at = 0.0
        while True:
            at += rng.expovariate(self.most)
            if rng.random() * self.most < self.rate(at):
                yield (at, *self.lengths(at, rng))


def usual(_: float, rng: random.Random) -> tuple[int, int]:
    """A prompt and an output of a chat; their means are `USUAL_PROMPT` and `USUAL_OUTPUT`."""
    return rng.randint(50, 2 * USUAL_PROMPT - 50), rng.randint(100, 2 * USUAL_OUTPUT - 100)


def calm(rate: float) -> Traffic:
    """The usual, at a steady rate."""
    return Traffic(lambda _: rate, usual, rate)


def crowd(rate: float, begins: float, doubling: float = 12.0) -> Traffic:
    """From `begins` on arrivals double every `doubling` seconds."""
    return Traffic(
        lambda t: min(8 * rate, rate * 2 ** (max(0.0, t - begins) / doubling)),
        usual,
        8 * rate,
    )


def burst(rate: float, begins: float, times: float = 5.0) -> Traffic:
    """From `begins` on `times` as many come."""
    return Traffic(lambda t: rate * (times if t >= begins else 1.0), usual, times * rate)


def long_contexts(rate: float, begins: float, times: int = 3) -> Traffic:
    """From `begins` on prompts and outputs are `times` as long; not quite as many come, for they stay longer."""

    def lengths(t: float, rng: random.Random) -> tuple[int, int]:
        prompt, output = usual(t, rng)
        return (times * prompt, times * output) if t >= begins else (prompt, output)

    return Traffic(lambda t: rate * (0.6 if t >= begins else 1.0), lengths, rate)


def prefill_spike(rate: float, begins: float, prompt: int = 3000, spikes: float = 0.6) -> Traffic:
    """From `begins` on `spikes` a second come beside the usual, each with a prompt that is many times as long."""

    def lengths(t: float, rng: random.Random) -> tuple[int, int]:
        if t >= begins and rng.random() < spikes / (rate + spikes):
            return prompt, rng.randint(100, 300)
        return usual(t, rng)

    return Traffic(lambda t: rate + (spikes if t >= begins else 0.0), lengths, rate + spikes)


def under_way(count: int, seed: int) -> Iterator[tuple[int, int]]:
    """Prompts and what is left of the outputs of `count` usual requests that came at some time before."""
    rng = random.Random(seed)
    for _ in range(count):
        prompt, output = usual(0.0, rng)
        done = rng.randrange(output)
        yield prompt + done, output - done


@dataclass(frozen=True, slots=True)
class Limit:
    """Until `until` (seconds) nobody is sent who could make the live requests hold more than `blocks` at their ends."""

    until: float
    blocks: int
    block_size: int


@contextmanager
def playing(traffic: Traffic, load: Load, seed: int, limit: Limit, already: int = 0) -> Iterator[float]:
    """Send the traffic in a thread as long as the context lasts; gives the Unix time at which it began.

    `already`: how many requests are under way then.
    """
    for prompt, left in under_way(already, seed):
        load.send(prompt, left, stream=False)
    begun, stop = time.time(), threading.Event()

    def send() -> None:
        for at, prompt, output in traffic.arrivals(seed):
            if stop.wait(max(0.0, begun + at - time.time())):
                return
            # However slow the machine is today, the calm stays calm.
            if at >= limit.until or load.demand(limit.block_size) < limit.blocks:
                load.send(prompt, output, stream=False)

    thread = threading.Thread(target=send, name="traffic", daemon=True)
    thread.start()
    try:
        yield begun
    finally:
        stop.set()
        thread.join()
