"""The embedded engine: vLLM V1's scheduling in virtual time, without a model.

Only the duration of a forward pass is modelled; everything else follows from the requests, so that the same
requests give the same steps. It has no clock of its own: whoever drives it says how far to go.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from exporter.demo.scheduler import Batch, Limits, Request, Scheduler, Sequence
from exporter.demo.tally import Tally
from exporter.errors import InputError


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a forward pass: a constant, plus per new token, plus per token resident in the KV cache."""

    constant: float = 0.0285
    per_token: float = 1.3e-4
    per_kv_token: float = 2.3e-7

    def of(self, batch: Batch) -> float:
        """How long the model works on `batch`."""
        return self.constant + self.per_token * batch.new_tokens + self.per_kv_token * batch.resident_tokens


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One engine: whose model, which limits, how fast. The defaults are Llama-3.1 8B on a 24 GB card."""

    model_name: str = "llama-3.1-8b"
    engine: str = "0"
    limits: Limits = field(default_factory=Limits)
    step_time: StepTime = field(default_factory=StepTime)
    gpu_memory_utilization: float = 0.9


@dataclass(frozen=True, slots=True)
class Step:
    """What one forward pass left behind at its end; times in seconds of engine time, ids in order of arrival."""

    start: float
    end: float
    new_tokens: int
    running: int
    waiting: int
    used_blocks: int
    preempted: tuple[int, ...]
    finished: tuple[int, ...]


class DemoEngine:
    """An engine fed by `arrivals`, requests in order of their arrival; more may be submitted at any time."""

    def __init__(self, config: EngineConfig | None = None, arrivals: Iterable[Request] = ()) -> None:
        self.config = config or EngineConfig()
        self.scheduler = Scheduler(self.config.limits)
        self.tally = Tally(longest=self.config.limits.max_model_len)
        self.now = 0.0
        self.running = 0
        self.waiting = 0
        self.usage = 0.0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preempted = 0
        """Preemptions so far, counted at once; the page's own counter moves when the victim runs again."""
        self.sleep_level = 0
        """0 is awake; 1 and 2 are vLLM's sleep levels, at which no step starts."""
        self._arrivals = iter(arrivals)
        self._next = next(self._arrivals, None)
        self._ids = 0
        self._batch: Batch | None = None
        self._start = self._end = self._previous = 0.0

    def submit(self, request: Request) -> int:
        """Queue one request now; return its id. A prompt that leaves no room for a token is refused as vLLM does."""
        if not 0 < request.prompt_tokens < self.config.limits.max_model_len or request.output_tokens < 1:
            raise InputError(
                f"request of {request.prompt_tokens} prompt and {request.output_tokens} output tokens: the prompt must "
                f"have 1 to {self.config.limits.max_model_len - 1} tokens and the output at least 1"
            )
        sequence = Sequence(self._ids, request, self.now, self.config.limits.max_model_len)
        self._ids += 1
        self.scheduler.add(sequence)
        return sequence.id

    def advance(self, until: float) -> None:
        """Go on to engine time `until`; a forward pass that ends later stays under way."""
        for _ in self.steps(until):
            pass

    def steps(self, until: float) -> Iterator[Step]:
        """The forward passes that end by `until`, one after the other as they are done."""
        while self._begin(until) and self._end <= until:
            yield self._finish()
        self.now = max(self.now, until)

    def _begin(self, until: float) -> bool:
        """Have a forward pass under way; false when none can start by `until`."""
        while self._batch is None:
            self._accept(self.now)
            batch = self.scheduler.schedule() if self._may_run() else Batch()
            if batch.work or batch.preempted:
                for sequence in batch.admitted:
                    if sequence.first_scheduled is None:
                        sequence.first_scheduled = self.now
                self._batch, self._start = batch, self.now
                self._end = self.now + self.config.step_time.of(batch)
            else:
                self._show()
                if self._next is None or self._next.arrival > until:
                    return False
                self.now = self._next.arrival
        return True

    def _finish(self) -> Step:
        batch, self._batch = self._batch, None
        assert batch is not None  # noqa: S101 - _begin has just said so
        self.preempted += len(batch.preempted)
        produced, finished = self.scheduler.complete(batch)
        self.tally.record_tokens(self._end, self._previous, produced)
        for sequence in finished:
            self.tally.record_end(self._end, sequence)
        self.now = self._previous = self._end
        self._show()
        return Step(
            start=self._start,
            end=self._end,
            new_tokens=batch.new_tokens,
            running=self.running,
            waiting=self.waiting,
            used_blocks=self.scheduler.pool.used,
            preempted=tuple(sequence.id for sequence in batch.preempted),
            finished=tuple(sequence.id for sequence in finished),
        )

    def _accept(self, until: float) -> None:
        while self._next is not None and self._next.arrival <= until:
            self.submit(self._next)
            self._next = next(self._arrivals, None)

    def _may_run(self) -> bool:
        return not self.sleep_level and bool(self.scheduler.running or self.scheduler.waiting)

    def _show(self) -> None:
        """Set what the page shows: vLLM's gauges move when a forward pass is done."""
        self.running = len(self.scheduler.running)
        self.waiting = len(self.scheduler.waiting)
        self.usage = self.scheduler.pool.usage
        self.prefix_queries = self.scheduler.prefix_queries
        self.prefix_hits = self.scheduler.prefix_hits
