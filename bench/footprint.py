"""What `vllm-headroom run` costs beside one recorded page that changes once a second.

    python -m bench.footprint [--seconds 120] [--engines 2] [--model-config FILE] [--write]

Installs this project alone into an environment of its own, runs it beside a page that a third process serves, and
prints its memory, the CPU time of a reading, the time of a scrape (as Prometheus asks: OpenMetrics, gzip), and the
time to its first reading (best of five). Times on the wall are worth something only on an idle machine. `--write`
puts the figures into the README.
"""

import argparse
import json
import os
import re
import subprocess
import threading
import time
from pathlib import Path

import numpy as np

from bench.served import Served, served
from bench.watched import (
    Scraper,
    busy,
    cpu_seconds,
    end,
    memory_mib,
    ours,
    running_cpu_seconds,
    start,
    timed,
    write_between,
)

STARTS = 5
SETTLING_SECONDS = 30.0
"""Before CPU is measured: the forecast has warmed up and the pages of the start are no longer touched."""
SCRAPES, PAUSE_SECONDS = 600, 0.0531
"""So far apart that scrapes meet every part of a tick, and one in nineteen is the first after it."""
BEGIN, END = "<!-- footprint: python -m bench.footprint --write -->", "<!-- /footprint -->"
UP = b'source_up{source="vllm"} 1.0'
PLAIN: dict[str, str] = {}


class Exporter:
    """The daemon beside a server, from its start to its first reading."""

    def __init__(self, command: Path, server: Served, *flags: str) -> None:
        begun = time.monotonic()
        self.process = start([command, "run", "--vllm-url", server.url, "--listen", "127.0.0.1:0", *flags])
        assert self.process.stdout is not None
        self.url = next(f[1] for line in self.process.stdout if (f := re.search(r"serves (\S+)", line)))
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.plain = Scraper(f"{self.url}/metrics", PLAIN)
        while UP not in self.plain():
            if time.monotonic() - begun > 60:
                raise RuntimeError("no reading within a minute")
            time.sleep(0.01)
        self.first_seconds = time.monotonic() - begun
        self.first_cpu_seconds = cpu_seconds(self.process.pid)

    def number(self, name: str) -> float:
        """A sample without labels of its page."""
        found = re.search(rf"^vllm_headroom_{name} (\S+)", self.plain().decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def close(self) -> tuple[int | None, float]:
        """Exit code and seconds after SIGTERM."""
        self.plain.close()
        return end(self.process)


def measure(command: Path, server: Served, seconds: float, *flags: str) -> dict[str, float]:
    """One long run; what is paid for is the monitor, and the scrapes that are timed come after it."""
    exporter = Exporter(command, server, *flags)
    pid = exporter.process.pid
    try:
        time.sleep(SETTLING_SECONDS)
        ticks, asked = exporter.number("ticks_total"), server.requests()["/metrics"]
        cpu, begun = running_cpu_seconds(pid), time.monotonic()
        time.sleep(seconds)
        cpu, wall = running_cpu_seconds(pid) - cpu, time.monotonic() - begun
        ticks, asked = exporter.number("ticks_total") - ticks, server.requests()["/metrics"] - asked
        scraper = Scraper(f"{exporter.url}/metrics")
        size = len(exporter.plain())
        before = running_cpu_seconds(pid), exporter.number("ticks_total")
        times = timed(scraper, SCRAPES, PAUSE_SECONDS)
        scraping = running_cpu_seconds(pid) - before[0] - (exporter.number("ticks_total") - before[1]) * cpu / ticks
        scraper.close()
        return {
            "rss_mib": round(memory_mib(pid), 1),
            "rss_peak_mib": round(memory_mib(pid, "VmHWM"), 1),
            "cpu_percent_of_a_core": round(100 * cpu / wall, 2),
            "cpu_ms_per_tick": round(1000 * cpu / ticks, 2),
            "requests_per_tick": round(asked / ticks, 2),
            "page_bytes": size,
            "scrape_p50_ms": round(times.median, 2),
            "scrape_p99_ms": round(times.p99, 2),
            "cpu_ms_per_scrape": round(1000 * scraping / SCRAPES, 2),
        }
    finally:
        code, took = exporter.close()
        print(f"exit code {code} {took:.2f} s after SIGTERM")


def starts(command: Path, server: Served, *flags: str) -> dict[str, float]:
    """The quickest of several starts."""
    begun = []
    for _ in range(STARTS):
        exporter = Exporter(command, server, *flags)
        begun.append((exporter.first_seconds, exporter.first_cpu_seconds))
        exporter.close()
    return {
        "start_to_first_reading_s": round(min(first for first, _ in begun), 2),
        "start_cpu_s": round(min(cpu for _, cpu in begun), 2),
    }


def slower_once_a_second() -> float:
    """How many times the CPU time of a fixed piece of numpy work is, done once a second, what it is done in a row.

    Caches, clocks and page tables have cooled down by then; on virtual machines that costs far more than on others.
    """

    def work() -> float:
        begun, numbers = time.thread_time(), np.random.default_rng(0).random((32, 1000))
        for _ in range(20):
            np.where(numbers > 0.5, np.cumsum(numbers, axis=1), numbers).sort(axis=1)
        return time.thread_time() - begun

    work()
    in_a_row = sum(work() for _ in range(10))
    apart = 0.0
    for _ in range(10):
        time.sleep(1)
        apart += work()
    return apart / in_a_row


def table(figures: dict[str, float], warning: str) -> str:
    """The figures beside what was aimed at."""
    rows = [
        ("resident memory", f"{figures['rss_mib']} MiB", "≤ 64 MiB"),
        ("CPU at one reading a second, forecast on", f"{figures['cpu_percent_of_a_core']} % of a core", "≤ 1 %"),
        ("a scrape of `/metrics`, median", f"{figures['scrape_p50_ms']} ms", ""),
        ("a scrape of `/metrics`, 99th percentile", f"{figures['scrape_p99_ms']} ms", "≤ 5 ms"),
        ("start of the process to the first reading", f"{figures['start_to_first_reading_s']} s", "≤ 1 s"),
        ("CPU of that start", f"{figures['start_cpu_s']} s", ""),
        ("requests to vLLM per reading", f"{figures['requests_per_tick']:.0f}", "1"),
    ]
    lines = ["| | measured | aim |", "|---|---|---|", *(f"| {what} | {found} | {aim} |" for what, found, aim in rows)]
    said = f"Not to be quoted: {warning}." if warning else f"{os.cpu_count()} cores, otherwise idle."
    said += (
        f" On this machine work costs {figures['slower_once_a_second']} times as much CPU once a second as in a row."
    )
    return "\n".join([*lines, "", said])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--model-config", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    flags = [] if arguments.model_config is None else ["--model-config", str(arguments.model_config.resolve())]
    command = ours() / "vllm-headroom"
    subprocess.run([command, "--version"], check=True)
    warning = busy()
    with served(arguments.engines) as server:
        figures = {"slower_once_a_second": round(slower_once_a_second(), 1)}
        figures |= starts(command, server, *flags) | measure(command, server, arguments.seconds, *flags)
    print(json.dumps(figures, indent=1))
    if warning:
        print(warning)
    if arguments.write:
        write_between(BEGIN, END, table(figures, warning))


if __name__ == "__main__":
    main()
