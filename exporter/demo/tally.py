"""What an engine has counted so far, kept as vLLM's own logger keeps it."""

from bisect import bisect_left
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

from exporter.demo.scheduler import Sequence

SECONDS_REQUEST = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
SECONDS_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
SECONDS_PER_TOKEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
CHOICES = (1, 2, 5, 10, 20)


def lengths_up_to(longest: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50 … up to the longest context: vLLM's buckets of token lengths."""
    bounds: list[int] = []
    decade = 1
    while True:
        for step in (1, 2, 5):
            if step * decade > longest:
                return tuple(bounds)
            bounds.append(step * decade)
        decade *= 10


class Buckets:
    """A histogram that grows: `bounds` without +Inf, `counts` per bucket with the one above the last bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Ordered[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value` as often as it was seen."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


@dataclass(slots=True)
class Tally:
    """Counters and histograms of one engine; times in seconds, lengths in tokens."""

    longest: int
    preemptions: int = 0
    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    generation_tokens: int = 0
    finished: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
    )
    prompt_lengths: Buckets = field(init=False)
    generation_lengths: Buckets = field(init=False)
    longest_generations: Buckets = field(init=False)
    max_tokens_params: Buckets = field(init=False)
    prefill_computed: Buckets = field(init=False)
    iteration_tokens: Buckets = field(default_factory=lambda: Buckets(ITERATION_TOKENS))
    choices: Buckets = field(default_factory=lambda: Buckets(CHOICES))
    request_preemptions: Buckets = field(default_factory=lambda: Buckets(PREEMPTIONS))
    first_token: Buckets = field(default_factory=lambda: Buckets(SECONDS_FIRST_TOKEN))
    inter_token: Buckets = field(default_factory=lambda: Buckets(SECONDS_PER_TOKEN))
    per_output_token: Buckets = field(default_factory=lambda: Buckets(SECONDS_PER_TOKEN))
    whole: Buckets = field(default_factory=lambda: Buckets(SECONDS_REQUEST))
    queue: Buckets = field(default_factory=lambda: Buckets(SECONDS_REQUEST))
    inference: Buckets = field(default_factory=lambda: Buckets(SECONDS_REQUEST))
    prefill: Buckets = field(default_factory=lambda: Buckets(SECONDS_REQUEST))
    decode: Buckets = field(default_factory=lambda: Buckets(SECONDS_REQUEST))

    def __post_init__(self) -> None:
        bounds = lengths_up_to(self.longest)
        self.prompt_lengths = Buckets(bounds)
        self.generation_lengths = Buckets(bounds)
        self.longest_generations = Buckets(bounds)
        self.max_tokens_params = Buckets(bounds)
        self.prefill_computed = Buckets(bounds)

    def record_tokens(self, end: float, previous: float, produced: list[Sequence]) -> None:
        """One forward pass ended at `end`, the one before at `previous`; each of `produced` got a token."""
        computed = 0
        steady = 0
        for sequence in produced:
            if sequence.first_token is None:
                sequence.first_token = end
                self.first_token.observe(end - sequence.request.arrival)
                self.prompt_tokens += sequence.request.prompt_tokens
                self.prompt_tokens_cached += sequence.cached_tokens
                computed += sequence.request.prompt_tokens - sequence.cached_tokens
            elif sequence.last_token == previous:
                steady += 1
            else:
                self.inter_token.observe(end - sequence.last_token)
            sequence.last_token = end
            if sequence.preemptions_seen < sequence.preemptions:
                # vLLM learns of a preemption with the victim's next token, so the counter moves late.
                self.preemptions += sequence.preemptions - sequence.preemptions_seen
                sequence.preemptions_seen = sequence.preemptions
        if steady:
            self.inter_token.observe(end - previous, steady)
        self.generation_tokens += len(produced)
        self.iteration_tokens.observe(computed + len(produced))

    def record_end(self, end: float, sequence: Sequence) -> None:
        """A request ended with the token it got at `end`."""
        request = sequence.request
        scheduled, first = sequence.first_scheduled or 0.0, sequence.first_token or 0.0
        self.finished["stop" if sequence.output < sequence.max_tokens else "length"] += 1
        self.prompt_lengths.observe(request.prompt_tokens)
        self.generation_lengths.observe(sequence.output)
        self.longest_generations.observe(sequence.output)
        self.choices.observe(1)
        self.max_tokens_params.observe(sequence.max_tokens)
        self.prefill_computed.observe(request.prompt_tokens - sequence.cached_tokens)
        self.request_preemptions.observe(sequence.preemptions)
        self.whole.observe(end - request.arrival)
        self.queue.observe(scheduled - sequence.queued)
        self.prefill.observe(first - scheduled)
        self.decode.observe(end - first)
        self.inference.observe(end - scheduled)
        self.per_output_token.observe((end - first) / (sequence.output - 1) if sequence.output > 1 else 0.0)
