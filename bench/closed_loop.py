"""Clients that keep a server busy at a steady load, each with one request at a time, and what they see in a window."""

import asyncio
import random
import time
from dataclasses import dataclass

import httpx
import numpy as np

from tests_vllm.tiny import VOCABULARY


@dataclass(frozen=True, slots=True)
class Window:
    """One window: what was beside the server, and what the clients saw. Latencies in milliseconds."""

    beside: str
    tokens_per_second: float
    mean: float
    p99: float


class Clients:
    """`count` clients that each send the next request when the last is answered; every token's time is kept."""

    def __init__(self, url: str, model: str, count: int, prompt: int, output: int) -> None:
        self.gaps: list[tuple[float, float]] = []
        """When a token came, and how long after the one before it."""
        self.tokens: list[float] = []
        self._random = random.Random(5)
        self._url, self._model, self._count, self._prompt, self._output = url, model, count, prompt, output

    async def run(self) -> None:
        """Go on until cancelled."""
        limits = httpx.Limits(max_connections=self._count)
        async with httpx.AsyncClient(base_url=self._url, timeout=300, limits=limits) as client:
            await asyncio.gather(*(self._one(client) for _ in range(self._count)))

    async def _one(self, client: httpx.AsyncClient) -> None:
        while True:
            prompt = [self._random.randrange(3, VOCABULARY) for _ in range(self._prompt)]
            body = {"model": self._model, "prompt": prompt, "max_tokens": self._output, "ignore_eos": True}
            last = None
            async with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
                answer.raise_for_status()
                async for line in answer.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    now = time.monotonic()
                    self.tokens.append(now)
                    if last is not None:
                        self.gaps.append((now, now - last))
                    last = now

    def window(self, begun: float, ended: float, beside: str) -> Window:
        """What was seen between two times."""
        gaps = np.array([gap for at, gap in self.gaps if begun <= at < ended]) * 1e3
        tokens = sum(begun <= at < ended for at in self.tokens)
        return Window(beside, tokens / (ended - begun), float(gaps.mean()), float(np.percentile(gaps, 99)))
