"""What the sidecar costs the server beside it: `python -m bench.effect_on_vllm [--rounds 6] [--seconds 15]`.

    VLLM_ENV=DIR python -m bench.effect_on_vllm --save

A real vLLM server on the CPU under a fixed closed-loop load that never pauses. Windows alternate: nobody reads,
somebody reads vLLM's page once a second and drops it (as any monitor must), `vllm-headroom run` at one reading a
second; their order is drawn at random in each round. What is reported is the mean of the differences within rounds,
with its 95 % confidence interval (Student's t).

Server, clients and exporter share the same cores. First the model takes all the CPU it can get, so that whatever runs
beside is taken from it; then every forward pass lasts 25 ms at least, as on a GPU, whose time is its own.
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
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.closed_loop import Clients, Window
from bench.proof.section import Section, Table, here
from tests_vllm.paced import PacedServer
from tests_vllm.server import VllmServer, free_port
from tests_vllm.tiny import make_model

BLOCKS = ("--num-gpu-blocks-override", "1024")
PACES = {"the CPU is the model's": 0.0, "a forward pass of 25 ms": 0.025}
BESIDE = ("nobody", "a bare reader", "vllm-headroom")
SETTLE_SECONDS = 3.0
WARM_SECONDS = 30.0
END_SECONDS = 60.0
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""97.5 % quantiles of Student's t for 1, 2, … degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Effect:
    """A mean difference within rounds, in per cent of the mean with nobody beside, and half of its 95 % interval."""

    alone: float
    percent: float
    half: float


@contextlib.asynccontextmanager
async def exporter(url: str, home: Path) -> AsyncIterator[None]:
    """`vllm-headroom run` as it is installed: one reading a second, forecast on."""
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
            process.kill()
            raise


@contextlib.asynccontextmanager
async def reader(url: str) -> AsyncIterator[None]:
    """Reads vLLM's page once a second and does nothing with it."""

    async def read() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            due = time.monotonic()
            while True:
                (await client.get("/metrics")).raise_for_status()
                due += 1.0
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    reading = asyncio.create_task(read())
    try:
        yield
        if reading.done():
            reading.result()
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading


def company(beside: str, url: str, home: Path) -> contextlib.AbstractAsyncContextManager[None]:
    """What is beside the server in a window."""
    if beside == "nobody":
        return contextlib.nullcontext()
    return reader(url) if beside == "a bare reader" else exporter(url, home)


async def measure(server: VllmServer, home: Path, options: argparse.Namespace) -> list[Window]:
    """All windows, one of each kind in a round, in the order in which they were taken."""
    with server.client() as client:
        model = client.get("/v1/models").json()["data"][0]["id"]
    clients = Clients(server.url, model, options.clients, options.prompt, options.output)
    running = asyncio.create_task(clients.run())
    await asyncio.sleep(WARM_SECONDS)
    order = random.Random(options.seed)
    windows = []
    for _ in range(options.rounds):
        for beside in order.sample(BESIDE, len(BESIDE)):
            async with company(beside, server.url, home):
                await asyncio.sleep(SETTLE_SECONDS)
                begun = time.monotonic()
                await asyncio.sleep(options.seconds)
                windows.append(clients.window(begun, time.monotonic(), beside))
            if running.done():
                running.result()
            print(*_row(windows[-1]), flush=True)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return windows


def _row(window: Window) -> list[str | float]:
    return [window.beside, round(window.tokens_per_second, 2), round(window.mean, 3), round(window.p99, 3)]


def effect(windows: Sequence[Window], beside: str, name: str) -> Effect:
    """What one figure differs by between windows with something beside the server and those with nobody."""
    rounds = [windows[at : at + len(BESIDE)] for at in range(0, len(windows), len(BESIDE))]
    values = [{window.beside: float(getattr(window, name)) for window in one} for one in rounds]
    differences = [value[beside] - value["nobody"] for value in values]
    alone = statistics.fmean(value["nobody"] for value in values)
    spread = statistics.stdev(differences) / math.sqrt(len(differences))
    half = STUDENT[min(len(differences) - 1, len(STUDENT)) - 1] * spread
    return Effect(alone, 100 * statistics.fmean(differences) / alone, 100 * half / alone)


def rows(windows: Sequence[Window]) -> list[tuple[str, ...]]:
    """A row for each figure: alone, and the differences with their intervals."""
    figures = (
        ("throughput", "tokens_per_second", "tokens/s"),
        ("inter-token latency, mean", "mean", "ms"),
        ("inter-token latency, 99th percentile", "p99", "ms"),
    )

    def told(found: Effect) -> str:
        return f"{found.percent:+.1f} % ({found.percent - found.half:+.1f} … {found.percent + found.half:+.1f})"

    return [
        (
            label,
            f"{effect(windows, BESIDE[1], name).alone:.4g} {unit}",
            *(told(effect(windows, beside, name)) for beside in BESIDE[1:]),
        )
        for label, name, unit in figures
    ]


def section(found: Mapping[str, Sequence[Window]], options: argparse.Namespace, version: str) -> Section:
    """The runs as a section of docs/proof.md."""
    text = (
        f"{options.clients} clients, each with a prompt of {options.prompt} and an answer of {options.output} tokens "
        f"at a time, without a pause; {options.rounds} rounds of windows of {options.seconds:g} s in random order: "
        "nobody beside the server, somebody who reads its page once a second and drops it, `vllm-headroom run` at one "
        "reading a second. Differences from nobody within rounds, in brackets their 95 % interval. Server, clients and "
        "exporter share the cores. First the model takes all the CPU it can get, so that whatever runs beside is taken "
        "from it; then every forward pass lasts 25 ms at least, as on a GPU, whose time is its own.",
    )
    table = [(pace, *row) for pace, windows in found.items() for row in rows(windows)]
    return Section(
        order=60,
        title="What it does to vLLM",
        text=text,
        command=f"python -m bench.effect_on_vllm --rounds {options.rounds} --seconds {options.seconds:g} --save",
        ran=here(version),
        tables=(Table(("", "", "alone", "with a bare reader", "with vllm-headroom"), tuple(table)),),
        figures={pace: [_row(window) for window in windows] for pace, windows in found.items()},
    )


def main() -> int:
    """Print the windows and the differences; with --save write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--output", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="write the section of docs/proof.md")
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        model = make_model(home / "tiny")
        for name, pace in PACES.items():
            with PacedServer(model, home, f"vllm-{pace:g}", *BLOCKS, pace=pace, max_model_len=2048) as server:
                with server.client() as client:
                    version = client.get("/version").json()["version"].partition("+")[0]
                found[name] = asyncio.run(measure(server, home, options))
    made = section(found, options, version)
    for row in made.tables[0].rows:
        print(*row, sep="   ")
    if options.save:
        made.save("effect-on-vllm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
