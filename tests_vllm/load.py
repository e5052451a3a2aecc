"""Requests of known lengths to a real server, streamed, so that what each has generated is known at every moment."""

import asyncio
import json
import random
import threading
import time
from bisect import bisect_right
from concurrent.futures import Future
from typing import Self

import httpx

from tests_vllm.server import VllmServer
from tests_vllm.tiny import VOCABULARY


class Sent:
    """One request: what was asked for, and what came back when. Times are Unix seconds."""

    def __init__(self, prompt: list[int], output: int, model: str, stream: bool) -> None:
        self.prompt_tokens = len(prompt)
        self.output_tokens = output
        self.model = model
        self.stream = stream
        self.sent = time.time()
        self.ended: float | None = None
        self.fault: str | None = None
        """Why it did not get all it asked for; `None` while it has none."""
        self.prompt = prompt
        self._times: list[float] = []
        self._counts: list[int] = []
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def note(self, count: int, at: float) -> None:
        """`count` tokens had been generated at `at`."""
        self._times.append(at)
        self._counts.append(count)

    def generated(self, at: float | None = None) -> int:
        """Tokens received until `at`, or until now."""
        if at is None:
            return self._counts[-1] if self._counts else 0
        number = bisect_right(self._times, at)
        return self._counts[number - 1] if number else 0

    @property
    def first_token(self) -> float | None:
        """When the first token came."""
        return self._times[0] if self._times else None

    @property
    def arrivals(self) -> tuple[tuple[float, int], ...]:
        """When how many tokens had come: every chunk of the stream."""
        return tuple(zip(self._times, self._counts, strict=True))

    @property
    def done(self) -> bool:
        """Whether it has ended, however."""
        return self.ended is not None

    def live(self, at: float) -> bool:
        """Whether it was under way at `at`."""
        return self.sent <= at and (self.ended is None or at < self.ended)

    def blocks(self, block_size: int, at: float) -> int:
        """Blocks its context held at `at` if it ran: prompt and generated tokens, rounded up; 0 when not live."""
        return -(-(self.prompt_tokens + self.generated(at)) // block_size) if self.live(at) else 0

    def abort(self) -> None:
        """Hang up, as a client that has seen enough."""
        if self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)


class Load:
    """Sends requests from a thread of its own; everything it sent is kept in `sent`, in order."""

    def __init__(self, server: VllmServer, seed: int = 0, model: str | None = None) -> None:
        """`model`: the name to ask for; the server's first one otherwise."""
        self.sent: list[Sent] = []
        self.random = random.Random(seed)
        self._server = server
        self._model = model
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="load", daemon=True)
        self._client: httpx.AsyncClient | None = None

    def __enter__(self) -> Self:
        if self._model is None:
            with self._server.client() as client:
                self._model = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
        self._client = httpx.AsyncClient(
            base_url=self._server.url,
            headers=self._server.headers,
            verify=self._server.trust(),
            timeout=httpx.Timeout(900.0, connect=60.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def prompt(self, tokens: int) -> list[int]:
        """A prompt that shares no block with any other."""
        return [self.random.randrange(3, VOCABULARY) for _ in range(tokens)]

    def send(self, prompt: int | list[int], output: int, *, stream: bool = True, model: str | None = None) -> Sent:
        """Send a request for exactly `output` tokens after a prompt of these tokens, or of so many random ones.

        Without `stream` nothing is known of it before its end, and it costs far less.
        """
        ids = self.prompt(prompt) if isinstance(prompt, int) else prompt
        request = Sent(ids, output, model or self._model or "", stream)
        self.sent.append(request)
        started: Future[None] = asyncio.run_coroutine_threadsafe(self._begin(request), self._loop)
        started.result(30)
        return request

    def live(self) -> list[Sent]:
        """Those under way now."""
        return [request for request in self.sent if not request.done]

    def demand(self, block_size: int) -> int:
        """Blocks that those under way will hold at their ends, all together."""
        return sum(-(-(request.prompt_tokens + request.output_tokens) // block_size) for request in self.live())

    def abort(self) -> None:
        """Hang up on all of them and wait until they are over."""
        for request in self.live():
            request.abort()
        self.wait(30)

    def wait(self, seconds: float = 600.0, *requests: Sent) -> None:
        """Wait until these, or all, have ended; raises when they do not."""
        wanted = requests or tuple(self.sent)
        until = time.monotonic() + seconds
        while not all(request.done for request in wanted):
            if time.monotonic() > until:
                left = sum(not request.done for request in wanted)
                raise TimeoutError(f"{left} of {len(wanted)} requests have not ended within {seconds:.0f} s")
            time.sleep(0.05)

    async def _begin(self, request: Sent) -> None:
        request._loop = self._loop
        request._task = asyncio.ensure_future(self._ask(request))

    async def _ask(self, request: Sent) -> None:
        body: dict[str, object] = {
            "model": request.model,
            "prompt": request.prompt,
            "max_tokens": request.output_tokens,
            "ignore_eos": True,
        }
        if request.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        assert self._client is not None
        try:
            async with self._client.stream("POST", "/v1/completions", json=body) as answer:
                if answer.status_code != 200:
                    request.fault = f"{answer.status_code}: {(await answer.aread()).decode(errors='replace')[:300]}"
                    return
                async for line in answer.aiter_lines():
                    if line.startswith(("data: {", "{")):
                        self._take(request, json.loads(line.removeprefix("data: ")))
            if request.fault is None and request.generated() != request.output_tokens:
                request.fault = f"{request.generated()} tokens of {request.output_tokens}"
        except asyncio.CancelledError:
            request.fault = "aborted"
        except httpx.HTTPError as error:
            request.fault = f"{type(error).__name__}: {error}"
        finally:
            request.ended = time.time()

    def _take(self, request: Sent, chunk: dict[str, object]) -> None:
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            count = int(usage["completion_tokens"])
            if count > request.generated():
                request.note(count, time.time())
        if "error" in chunk:
            request.fault = str(chunk["error"])[:300]

    async def _close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
