"""The embedded engine's scheduler: what runs in the next forward pass, as vLLM V1 decides it.

First come, first served; running requests before waiting ones; prefills in chunks under a token budget; a
request is admitted when its whole sequence would fit beside the watermark, yet takes blocks chunk by chunk;
when a running request finds no block, the last admitted one is preempted: it loses its blocks, keeps its
tokens, waits at the head of the queue and computes everything again. A step that preempts admits nothing.
"""

from collections import deque
from dataclasses import dataclass, field

from exporter.demo.blocks import BlockKey, BlockPool


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sends: `arrival` in seconds of engine time, lengths in tokens.

    The model stops after `output_tokens`; `max_tokens` is what the client allows, by default all that the
    context has left. The first `prefix_tokens` of the prompt are the same for all requests of one `prefix`.
    """

    arrival: float
    prompt_tokens: int
    output_tokens: int
    max_tokens: int | None = None
    prefix: str | None = None
    prefix_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a step: tokens, sequences, blocks; `watermark` is the ratio of blocks admission leaves free."""

    num_gpu_blocks: int = 2588
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int = 16384
    watermark: float = 0.0
    prefix_caching: bool = True


class Sequence:
    """One live request: `tokens` exist, of which `computed` are in the KV cache or being computed."""

    __slots__ = (
        "blocks", "cached_tokens", "computed", "first_scheduled", "first_token", "full_at", "id", "last_token",
        "max_tokens", "output", "preemptions", "preemptions_seen", "queued", "request", "room", "stops_at", "tokens",
    )  # fmt: skip

    def __init__(self, id_: int, request: Request, queued: float, max_model_len: int) -> None:
        self.id = id_
        self.request = request
        self.queued = queued
        self.max_tokens = request.max_tokens or max_model_len - request.prompt_tokens
        self.stops_at = min(request.output_tokens, self.max_tokens, max_model_len - request.prompt_tokens)
        self.tokens = request.prompt_tokens
        self.output = 0
        self.computed = 0
        self.blocks: list[int] = []
        self.room = 0
        self.full_at = 0
        self.cached_tokens = 0
        self.preemptions = 0
        self.preemptions_seen = 0
        self.first_scheduled: float | None = None
        self.first_token: float | None = None
        self.last_token = 0.0

    def key(self, index: int, block_size: int) -> BlockKey:
        """What its block `index` holds once full: shared content, or its own."""
        request = self.request
        if request.prefix is not None and (index + 1) * block_size <= request.prefix_tokens:
            return (request.prefix, index)
        return (self.id, index)


@dataclass(slots=True)
class Batch:
    """One forward pass: its sequences with their new tokens, who was preempted and who admitted for it."""

    work: list[tuple[Sequence, int]] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    new_tokens: int = 0
    resident_tokens: int = 0


class Scheduler:
    """Waiting and running sequences over one pool of blocks."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.num_gpu_blocks)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.prefix_queries = 0
        self.prefix_hits = 0
        self._watermark_blocks = int(limits.watermark * limits.num_gpu_blocks)

    def add(self, sequence: Sequence) -> None:
        """Queue a new request."""
        self.waiting.append(sequence)

    def schedule(self) -> Batch:
        """Choose the work of the next forward pass and hold its blocks; an empty batch when nothing can run."""
        batch = Batch()
        budget = self._continue_running(batch, self.limits.max_num_batched_tokens)
        if not batch.preempted:
            self._admit(batch, budget)
        return batch

    def complete(self, batch: Batch) -> tuple[list[Sequence], list[Sequence]]:
        """The forward pass is done: who got a token, and who of them ended and gave its blocks back."""
        produced: list[Sequence] = []
        finished: list[Sequence] = []
        for sequence, _ in batch.work:
            if sequence.computed < sequence.tokens:
                continue
            sequence.tokens += 1
            sequence.output += 1
            produced.append(sequence)
            if sequence.output >= sequence.stops_at:
                finished.append(sequence)
                self._drop_blocks(sequence)
        if finished:
            ended = {sequence.id for sequence in finished}
            self.running = [sequence for sequence in self.running if sequence.id not in ended]
        return produced, finished

    def _continue_running(self, batch: Batch, budget: int) -> int:
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            new = sequence.tokens - sequence.computed
            if new > budget:
                new = budget
            end = sequence.computed + new
            if end > sequence.room and not self._make_room(sequence, end, batch):
                break
            self._put(batch, sequence, end, new)
            budget -= new
            index += 1
        return budget

    def _make_room(self, sequence: Sequence, end: int, batch: Batch) -> bool:
        """Hold blocks for `end` tokens, preempting the last admitted as often as needed; false if that is itself."""
        missing = -(-end // self.limits.block_size) - len(sequence.blocks)
        while missing > self.pool.free:
            victim = self.running.pop()
            self._drop_blocks(victim)
            victim.computed = 0
            victim.preemptions += 1
            self.waiting.appendleft(victim)
            batch.preempted.append(victim)
            if victim is sequence:
                return False
        self._hold(sequence, self.pool.take(missing))
        return True

    def _admit(self, batch: Batch, budget: int) -> None:
        size = self.limits.block_size
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting[0]
            shared = self._cached_blocks(sequence)
            cached = len(shared) * size
            if not sequence.preemptions:
                sequence.cached_tokens = cached
            whole = -(-sequence.tokens // size) - len(shared) + self.pool.unheld(shared)
            spare = self._watermark_blocks if self.running else 0
            if whole + spare > self.pool.free:
                break
            self.waiting.popleft()
            self.running.append(sequence)
            if self.limits.prefix_caching and not sequence.preemptions:
                self.prefix_queries += sequence.tokens
                self.prefix_hits += cached
            new = min(sequence.tokens - cached, budget)
            self.pool.share(shared)
            self._hold(sequence, shared)
            self._hold(sequence, self.pool.take(-(-(cached + new) // size) - len(shared)))
            sequence.full_at = cached + size
            batch.admitted.append(sequence)
            self._put(batch, sequence, cached + new, new)
            budget -= new

    def _cached_blocks(self, sequence: Sequence) -> list[int]:
        """Blocks of its prompt that the cache still has; the last token is always computed anew."""
        if not self.limits.prefix_caching:
            return []
        size = self.limits.block_size
        return self.pool.hits(sequence.key(index, size) for index in range((sequence.tokens - 1) // size))

    def _put(self, batch: Batch, sequence: Sequence, end: int, new: int) -> None:
        sequence.computed = end
        batch.work.append((sequence, new))
        batch.new_tokens += new
        batch.resident_tokens += end
        if end >= sequence.full_at and self.limits.prefix_caching:
            size = self.limits.block_size
            for index in range(sequence.full_at // size - 1, end // size):
                self.pool.remember(sequence.blocks[index], sequence.key(index, size))
            sequence.full_at = (end // size + 1) * size

    def _hold(self, sequence: Sequence, blocks: list[int]) -> None:
        sequence.blocks += blocks
        sequence.room += len(blocks) * self.limits.block_size

    def _drop_blocks(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.room = 0
