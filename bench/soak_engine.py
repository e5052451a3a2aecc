"""A served engine in steps of a second, and its part of a vLLM page: cheap enough for a day of readings.

It is no model of a scheduler (`exporter.demo` is): blocks are held by requests that grow, a request that finds none
sends the last one back, and all of a page's counters follow from that.
"""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from tests.support.expositions import exposition

BLOCK_TOKENS = 16
TOKENS_PER_SECOND = 30
MAX_RUNNING = 64
LENGTHS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
STEPS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
REASONS = ("stop", "length", "abort", "error")
SLEEP = ("awake", "weights_offloaded", "discard_all")
_OWN = re.compile(
    r"^vllm:(kv_cache_usage_perc|num_requests_\w+|engine_sleep_state|num_preemptions_total|prompt_tokens_total"
    r"|generation_tokens_total|request_success_total|iteration_tokens_total_\w+|request_prompt_tokens_\w+"
    r"|request_generation_tokens_\w+|cache_config_info)\{"
)


@dataclass(slots=True)
class Buckets:
    """What a Prometheus histogram counts."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        at = next((index for index, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))
        self.counts[at] += times
        self.sum += value * times

    def lines(self, name: str, labels: str) -> Iterable[str]:
        total = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}.0'
        yield f"{name}_count{{{labels}}} {total}.0"
        yield f"{name}_sum{{{labels}}} {self.sum}"


@dataclass(slots=True)
class Job:
    """A request: tokens it holds now, and those at its end."""

    prompt: int
    held: int
    end: int


class Engine:
    """One engine of one model; `pool_told` is whether the page tells the size of its pool."""

    def __init__(self, model: str, number: str, blocks: int, chance: random.Random, *, pool_told: bool = True) -> None:
        self.model, self.number, self.blocks = model, number, blocks
        self.sleeping = 0
        self._chance = chance
        self._pool_told = pool_told
        self.restart()

    def restart(self) -> None:
        """A new process: nothing runs and every counter is 0."""
        self._running: list[Job] = []
        self._waiting: list[Job] = []
        self._preempted = self._prompt_tokens = self._generated = 0
        self._ended = dict.fromkeys(REASONS, 0)
        self._prompts, self._answers, self._steps = Buckets(LENGTHS), Buckets(LENGTHS), Buckets(STEPS)

    def second(self, arrivals: int) -> None:
        """Let a second pass in which so many requests arrive."""
        for _ in range(arrivals):
            prompt = int(min(4000, self._chance.lognormvariate(5.8, 0.8))) + 4
            self._waiting.append(Job(prompt, prompt, prompt + int(min(1500, self._chance.lognormvariate(5.3, 0.6)))))
        del self._waiting[200:]
        if self.sleeping:
            return
        held = self._held()
        while self._waiting and len(self._running) < MAX_RUNNING:
            needed = self._waiting[0].held // BLOCK_TOKENS + 1
            if held + needed > self.blocks:
                break
            held += needed
            self._prompt_tokens += self._waiting[0].held
            self._running.append(self._waiting.pop(0))
        for job in self._running:
            job.held += TOKENS_PER_SECOND
        self._generated += TOKENS_PER_SECOND * len(self._running)
        self._steps.add(max(1.0, float(len(self._running))), TOKENS_PER_SECOND)
        for job in [job for job in self._running if job.held >= job.end]:
            self._running.remove(job)
            self._ended["length" if self._chance.random() < 0.1 else "stop"] += 1
            self._prompts.add(job.prompt)
            self._answers.add(job.end - job.prompt)
        while self._held() > self.blocks:
            self._waiting.insert(0, self._running.pop())
            self._preempted += 1

    def lines(self) -> Iterable[str]:
        """Its lines of the page, about as many as a real engine has."""
        labels = f'engine="{self.number}",model_name="{self.model}"'
        usage = 0.0 if self.sleeping else self._held() / self.blocks
        yield f"vllm:kv_cache_usage_perc{{{labels}}} {usage}"
        yield f"vllm:num_requests_running{{{labels}}} {0 if self.sleeping else len(self._running)}.0"
        yield f"vllm:num_requests_waiting{{{labels}}} {len(self._waiting)}.0"
        yield f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} {len(self._waiting)}.0'
        for level, state in enumerate(SLEEP):
            yield f'vllm:engine_sleep_state{{{labels},sleep_state="{state}"}} {float(level == self.sleeping)}'
        yield f"vllm:num_preemptions_total{{{labels}}} {self._preempted}.0"
        yield f"vllm:prompt_tokens_total{{{labels}}} {self._prompt_tokens}.0"
        yield f"vllm:generation_tokens_total{{{labels}}} {self._generated}.0"
        for reason, count in self._ended.items():
            yield f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {count}.0'
        yield from self._prompts.lines("vllm:request_prompt_tokens", labels)
        yield from self._answers.lines("vllm:request_generation_tokens", labels)
        yield from self._steps.lines("vllm:iteration_tokens_total", labels)
        if self._pool_told:
            pool = f'block_size="{BLOCK_TOKENS}",engine="{self.number}",num_gpu_blocks="{self.blocks}"'
            yield f'vllm:cache_config_info{{cache_dtype="auto",gpu_memory_utilization="0.9",{pool}}} 1.0'
        yield _others().replace('engine="0"', f'engine="{self.number}"').replace('"tiny"', f'"{self.model}"')

    def _held(self) -> int:
        return sum(job.held // BLOCK_TOKENS + 1 for job in self._running)


@cache
def _others() -> str:
    """The lines of a recorded engine that nobody here computes."""
    page = exposition("vllm-0.32-one-engine-full.prom").splitlines()
    return "\n".join(line for line in page if line.startswith("vllm:") and not _OWN.match(line))
