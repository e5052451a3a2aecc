"""What many engines on one page cost, and what a thousand scrapes at once do to the tick.

    python -m bench.scale [--seconds 60] [--only engines|scrapes] [--write]

Every engine of the page is busy: five requests a second end on it, and its pool moves from second to second. The page
of the exporter is scraped once a tick, so that every tick's page is made. CPU is the time of all threads of the
daemon on a core. `--write` puts the figures into the README.
"""

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from bench.footprint import Exporter
from bench.served import served
from bench.watched import Scraper, busy, memory_mib, ours, running_cpu_seconds, write_between

PAGES = ((1, 0), (8, 0), (64, 0), (64, 5_000_000))
"""Engines, and bytes up to which the page is padded with series of others."""
SETTLING_SECONDS = 45.0
BEGIN, END = "<!-- scale: python -m bench.scale --write -->", "<!-- /scale -->"
CLIENTS, ROUNDS = 1_000, 30


def cost(command: Path, engines: int, size: int, seconds: float) -> tuple[float, str]:
    """CPU milliseconds of a tick, and the line to print."""
    with served(engines, "moving", size) as server:
        exporter = Exporter(command, server, "--gpus", "none")
        pid = exporter.process.pid
        try:
            time.sleep(SETTLING_SECONDS)
            scraper = Scraper(f"{exporter.url}/metrics")
            ticks, cpu = exporter.number("ticks_total"), running_cpu_seconds(pid)
            begun, scraped = time.monotonic(), 0
            while time.monotonic() - begun < seconds:
                time.sleep(max(0.0, scraped + 1 - (time.monotonic() - begun)))
                scraper()
                scraped += 1
            cpu, wall = running_cpu_seconds(pid) - cpu, time.monotonic() - begun
            ticks = exporter.number("ticks_total") - ticks
            bytes_read, bytes_said = len(Scraper(f"{server.url}/metrics", {})()), len(exporter.plain())
            a_tick = 1000 * cpu / ticks
            line = (
                f"| {engines} | {bytes_read / 1e6:.2f} | {bytes_said / 1e6:.2f} | {a_tick:.1f} | {a_tick / 10:.1f} "
                f"| {ticks / wall:.2f} | {memory_mib(pid):.0f} |"
            )
            return a_tick, line
        finally:
            exporter.close()


def engines_table(command: Path, seconds: float) -> Iterator[str]:
    """One row a page, and the slope."""
    yield (
        "| engines | page of vLLM, MB | page of ours, MB | CPU a tick, ms | % of a core at a tick a second "
        "| ticks a second | memory, MiB |"
    )
    yield "|---|---|---|---|---|---|---|"
    found = []
    for engines, size in PAGES:
        a_tick, line = cost(command, engines, size, seconds)
        yield line
        if not size:
            found.append((engines, a_tick))
    counts, costs = np.array(found).T
    slope, base = np.polyfit(counts, costs, 1)
    off = max(abs(costs - (base + slope * counts)))
    yield ""
    yield f"A tick costs {base:.1f} ms and {slope:.2f} ms for each engine; no row is over {off:.1f} ms off that line."


async def one_scrape(host: str, port: int) -> tuple[float, bool]:
    """Seconds of a connection, a request and its answer; whether it was a whole page."""
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read(-1)
            writer.close()
    except (OSError, TimeoutError):
        return time.perf_counter() - begun, False
    head, _, body = answer.partition(b"\r\n\r\n")
    whole = head.startswith(b"HTTP/1.1 200") and f"Content-Length: {len(body)}".lower().encode() in head.lower()
    return time.perf_counter() - begun, whole


async def crowd(url: str) -> tuple[list[float], int]:
    """`ROUNDS` times a thousand scrapes at once, a second apart: the seconds of each, and how many failed."""
    parts = urlsplit(url)
    times: list[float] = []
    failed = 0
    for _ in range(ROUNDS):
        due = time.monotonic() + 1
        told = await asyncio.gather(*(one_scrape("127.0.0.1", parts.port or 80) for _ in range(CLIENTS)))
        times += [seconds for seconds, _ in told]
        failed += sum(not whole for _, whole in told)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    return times, failed


def drift(times: Sequence[float]) -> str:
    """How far ticks were from a second apart."""
    gaps = [after - before for before, after in itertools.pairwise(times)]
    off = sorted(abs(gap - 1) for gap in gaps)
    median, p99, worst = (1000 * value for value in (statistics.median(off), off[int(0.99 * len(off))], off[-1]))
    told = f"{median:.1f} ms (median), {p99:.1f} ms (p99), {worst:.1f} ms (worst)"
    return f"{len(times)} ticks, a second apart but for {told}"


def scrapes(command: Path) -> Iterator[str]:
    """Ticks alone, then ticks under a thousand scrapes at once every second."""
    with served(2, "moving") as server:
        exporter = Exporter(command, server, "--gpus", "none")
        try:
            time.sleep(10)
            begun = len(server.times())
            time.sleep(ROUNDS)
            alone = server.times()[begun:]
            times, failed = asyncio.run(crowd(exporter.url))
            crowded = server.times()[begun + len(alone) :]
        finally:
            exporter.close()
    times.sort()
    median, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    yield ""
    yield f"Alone: {drift(alone)}."
    yield f"With {CLIENTS} scrapes at once every second: {drift(crowded)};"
    yield f"of {len(times)} scrapes {failed} failed; median {median:.2f} s, p99 {p99:.2f} s."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", choices=("engines", "scrapes"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    command = ours() / "vllm-headroom"
    warning = busy()
    parts = [] if options.only == "scrapes" else [engines_table(command, options.seconds)]
    parts += [] if options.only == "engines" else [scrapes(command)]
    lines = []
    for line in itertools.chain(*parts):
        print(line, flush=True)
        lines.append(line)
    if warning:
        lines += ["", f"Not to be quoted: {warning}."]
        print(warning)
    if options.write:
        write_between(BEGIN, END, "\n".join(lines).strip())


if __name__ == "__main__":
    main()
