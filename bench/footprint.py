"""What `vllm-headroom run` costs beside one recorded page that changes once a second.

    python -m bench.footprint [--seconds 120] [--engines 2] [--page FILE] [--model-config FILE]

Prints resident memory (peak), CPU of one core, the time of a scrape of our own page (p50, p99), the time from the
start of the process to its first reading, and the requests made to vLLM per tick.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

from tests.support.loopback import Connection, PageServer, Request
from tests.support.pages import answer

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "tests/data/expositions/vllm-0.32-two-engines.prom"
GROWING = re.compile(
    r"^(vllm:(?:generation_tokens_total|prompt_tokens_total|iteration_tokens_total_(?:count|sum))\{.*\}) "
)


class ChangingPage:
    """A recorded page whose counters grow and whose usage moves with every reading, as those of a busy server do."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._reading = 0

    def __call__(self, connection: Connection, request: Request) -> bool:
        self._reading += 1
        n = self._reading
        lines = []
        for line in self._lines:
            found = GROWING.match(line)
            if found:
                line = f"{found[1]} {n * 40.0}"
            elif line.startswith("vllm:kv_cache_usage_perc{"):
                line = f"{line.rsplit(' ', 1)[0]} {0.5 + 0.3 * ((n * 7) % 13) / 13}"
            lines.append(line)
        return answer("\n".join(lines) + "\n")(connection, request)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int, kind: str) -> float:
    """`VmRSS` is the memory now, `VmHWM` the most there ever was."""
    found = re.search(rf"{kind}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return round(int(found[1]) / 1024, 1) if found else 0.0


def measure(page: Path, seconds: float, model_config: Path | None) -> dict[str, float]:
    with PageServer(ChangingPage(page.read_text())) as server:
        command = [sys.executable, "-m", "exporter", "run", "--vllm-url", server.url, "--listen", "127.0.0.1:0"]
        if model_config is not None:
            command += ["--model-config", str(model_config)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        started = time.monotonic()
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        try:
            assert process.stderr is not None
            url = next(found[1] for line in process.stderr if (found := re.search(r"serves (\S+)", line)))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            client = httpx.Client(base_url=url)
            while 'source_up{source="vllm"} 1.0' not in client.get("/metrics").text:
                time.sleep(0.01)
            first = time.monotonic() - started
            time.sleep(5)
            cpu, begun = cpu_seconds(process.pid), time.monotonic()
            before = len([r for r in server.requests if r.path == "/metrics"])
            ticks = ticks_of(client)
            # What is paid for is the monitor; the scrapes below are timed and counted after it.
            time.sleep(seconds)
            share = (cpu_seconds(process.pid) - cpu) / (time.monotonic() - begun)
            asked = (len([r for r in server.requests if r.path == "/metrics"]) - before) / (ticks_of(client) - ticks)
            times = []
            for _ in range(200):
                time.sleep(0.05)
                at = time.perf_counter()
                client.get("/metrics")
                times.append((time.perf_counter() - at) * 1000)
            times.sort()
            return {
                "rss_mib": memory_mib(process.pid, "VmRSS"),
                "rss_peak_mib": memory_mib(process.pid, "VmHWM"),
                "cpu_percent_of_a_core": round(100 * share, 2),
                "scrape_p50_ms": round(statistics.median(times), 2),
                "scrape_p99_ms": round(times[int(len(times) * 0.99)], 2),
                "start_to_first_reading_s": round(first, 2),
                "requests_per_tick": round(asked, 2),
            }
        finally:
            process.terminate()
            process.wait(10)


def ticks_of(client: httpx.Client) -> float:
    found = re.search(r"^vllm_headroom_ticks_total (\S+)", client.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--model-config", type=Path)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.page, arguments.seconds, arguments.model_config), indent=1))


if __name__ == "__main__":
    main()
