"""What the sidecar costs the server beside it: `python -m bench.effect_on_vllm [--pairs 8] [--seconds 20]`.

    VLLM_ENV=DIR python -m bench.effect_on_vllm --pairs 8 --save

One real vLLM server on the CPU under a fixed closed-loop load that never pauses. Windows with `vllm-headroom run` at
one reading a second and windows without it alternate, the order within each pair drawn at random; the exporter starts
and ends between windows. What is reported is the mean of the paired differences with its 95 % confidence interval
(Student's t). Beside a machine's other work the windows are noisy, but pairs see the same noise: it widens the interval
and does not shift it.

Server, clients and exporter share the same cores, so this is the hardest case: on a GPU the engine's time is its own.
"""

import argparse
import asyncio
import contextlib
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from bench.proof.section import Section, Table, here
from tests_vllm.server import VllmServer, free_port
from tests_vllm.tiny import VOCABULARY, make_model

FLAGS = ("--max-model-len", "2048", "--block-size", "32", "--num-gpu-blocks-override", "1024")
SETTLE_SECONDS = 3.0
WARM_SECONDS = 30.0
END_SECONDS = 60.0
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""97.5 % quantiles of Student's t for 1, 2, … degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window: whether the exporter ran, and what the clients saw. Latencies in milliseconds."""

    sidecar: bool
    tokens_per_second: float
    mean: float
    p99: float


@dataclass(frozen=True, slots=True)
class Effect:
    """A mean paired difference, in per cent of the mean without the exporter, and half of its 95 % interval."""

    without: float
    percent: float
    half: float


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

    def window(self, begun: float, ended: float, *, sidecar: bool) -> Window:
        """What was seen between two times."""
        gaps = np.array([gap for at, gap in self.gaps if begun <= at < ended]) * 1e3
        tokens = sum(begun <= at < ended for at in self.tokens)
        return Window(sidecar, tokens / (ended - begun), float(gaps.mean()), float(np.percentile(gaps, 99)))


@contextlib.asynccontextmanager
async def exporter(url: str, home: Path) -> AsyncIterator[None]:
    """`vllm-headroom run` as it is installed: one reading a second, forecast on. The clients go on while it ends."""
    command = [sys.executable, "-m", "exporter", "run", "--vllm-url", url, "--listen", f"127.0.0.1:{free_port()}"]
    with (home / "exporter.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    try:
        yield
        if process.returncode is not None:
            raise RuntimeError((home / "exporter.log").read_text())
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            print(f"the exporter did not end within {END_SECONDS:g} s:\n{(home / 'exporter.log').read_text()[-2000:]}")
            process.kill()
            await process.wait()


async def measure(server: VllmServer, home: Path, options: argparse.Namespace) -> list[Window]:
    """All windows, two for each pair, in the order in which they were taken."""
    with server.client() as client:
        model = client.get("/v1/models").json()["data"][0]["id"]
    clients = Clients(server.url, model, options.clients, options.prompt, options.output)
    running = asyncio.create_task(clients.run())
    await asyncio.sleep(WARM_SECONDS)
    order = random.Random(options.seed)
    windows = []
    for _ in range(options.pairs):
        for sidecar in order.sample((True, False), 2):
            async with exporter(server.url, home) if sidecar else contextlib.nullcontext():
                await asyncio.sleep(SETTLE_SECONDS)
                begun = time.monotonic()
                await asyncio.sleep(options.seconds)
                windows.append(clients.window(begun, time.monotonic(), sidecar=sidecar))
            if running.done():
                running.result()
            print(*_row(windows[-1]), flush=True)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return windows


def _row(window: Window) -> list[float]:
    return [window.sidecar, round(window.tokens_per_second, 2), round(window.mean, 3), round(window.p99, 3)]


def effect(windows: Sequence[Window], name: str) -> Effect:
    """The paired difference of one figure."""
    pairs = [windows[at : at + 2] for at in range(0, len(windows), 2)]
    values = [{window.sidecar: float(getattr(window, name)) for window in pair} for pair in pairs]
    differences = [value[True] - value[False] for value in values]
    without = statistics.fmean(value[False] for value in values)
    spread = statistics.stdev(differences) / math.sqrt(len(differences))
    half = STUDENT[min(len(differences) - 1, len(STUDENT)) - 1] * spread
    return Effect(without, 100 * statistics.fmean(differences) / without, 100 * half / without)


def section(windows: Sequence[Window], options: argparse.Namespace, version: str) -> Section:
    """The run as a section of docs/proof.md."""
    figures = (
        ("throughput", "tokens_per_second", "tokens/s"),
        ("inter-token latency, mean", "mean", "ms"),
        ("inter-token latency, 99th percentile", "p99", "ms"),
    )
    rows = []
    for label, name, unit in figures:
        found = effect(windows, name)
        interval = f"{found.percent - found.half:+.1f} … {found.percent + found.half:+.1f} %"
        rows.append((label, f"{found.without:.4g} {unit}", f"{found.percent:+.1f} %", interval))
    text = (
        f"{options.clients} clients, each with a prompt of {options.prompt} and an answer of {options.output} tokens "
        f"at a time, without a pause; {options.pairs} pairs of windows of {options.seconds:g} s, with and without "
        "`vllm-headroom run` at one reading a second, in random order within each pair. Server, clients and exporter "
        "share the cores, so that whatever the exporter and the reading of the page cost is taken from the engine: on "
        "a GPU it is not.",
    )
    return Section(
        order=60,
        title="What it does to vLLM",
        text=text,
        command=f"python -m bench.effect_on_vllm --pairs {options.pairs} --seconds {options.seconds:g} --save",
        ran=here(version),
        tables=(Table(("", "without", "difference with", "95 % interval"), tuple(rows)),),
        figures={"windows": [_row(window) for window in windows]},
    )


def main() -> int:
    """Print the windows and the differences; with --save write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--output", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="write the section of docs/proof.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        with VllmServer(make_model(home / "tiny"), home / "vllm.log", *FLAGS) as server:
            with server.client() as client:
                version = client.get("/version").json()["version"].partition("+")[0]
            windows = asyncio.run(measure(server, home, options))
    made = section(windows, options, version)
    for row in made.tables[0].rows:
        print(*row, sep="   ")
    if options.save:
        made.save("effect-on-vllm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
