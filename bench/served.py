"""A recorded page of vLLM that goes on as it began, changing once a second, served by a process of its own.

    python -m bench.served [--engines 2] [--load moving] [--bytes 0]

Every counter and histogram grows as on the recorded page: five requests a second finish on each engine, of the
recorded lengths. `--load` says what the pools do: `moving` moves each between a half and four fifths full from second
to second; `apart` keeps the first one full, with two preemptions a second, and all others empty and idle. `--bytes`
pads the page with series of its HTTP server, as one with many routes has them.
"""

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.support.expositions import exposition
from tests.support.loopback import Connection, PageServer, Request
from tests.support.pages import answer, status

ROOT = Path(__file__).parent.parent
RECORDED = "vllm-0.32-one-engine-full.prom"
CAPACITY_TOKENS = 8_192
"""What the recorded engine says of its own pool."""
FINISHED = 215
FINISHING_A_SECOND = 5.0
FULL, EMPTY = 0.98, 0.0
PREEMPTIONS_A_SECOND = 2.0
LOADS = ("moving", "apart")
COUNTS, TIMES = "/bench/requests", "/bench/times"

_SERIES = re.compile(r"^(vllm:\w+)(\{.*\}) (\S+)$")
_GROWS = re.compile(r"_(total|count|sum|bucket)$")


class GrowingPage:
    """The recorded page with `engines` engines, at any second."""

    def __init__(self, engines: int, load: str, size: int = 0) -> None:
        self._engines, self._load = range(engines), load
        self._parts = list(self._split(exposition(RECORDED)))
        self._padding = b""
        self._padding = _padding(size - len(self.at(0)))

    def _split(self, page: str) -> Iterator[tuple[str, str, str, float, int]]:
        """Text that stays; or name, labels, recorded value and engine of a series that changes."""
        for line in page.splitlines():
            found = _SERIES.match(line)
            if found is None or 'engine="0"' not in line:
                yield line, "", "", 0.0, 0
                continue
            for engine in self._engines:
                labels = found[2].replace('engine="0"', f'engine="{engine}"')
                yield "", found[1], labels, float(found[3]), engine

    def at(self, second: int) -> bytes:
        """The page in that second."""
        grown = 1.0 + second * FINISHING_A_SECOND / FINISHED
        lines = [
            text or f"{name}{labels} {self._value(name, recorded, engine, second, grown)}"
            for text, name, labels, recorded, engine in self._parts
        ]
        return "\n".join([*lines, ""]).encode() + self._padding

    def _value(self, name: str, recorded: float, engine: int, second: int, grown: float) -> float:
        apart = self._load == "apart"
        if name == "vllm:kv_cache_usage_perc":
            if apart:
                return FULL if engine == 0 else EMPTY
            return 0.5 + 0.3 * ((second * 7 + engine * 5) % 13) / 13
        if name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason"):
            return 0.0 if apart and engine > 0 else recorded
        if name == "vllm:num_preemptions_total":
            return PREEMPTIONS_A_SECOND * second if apart and engine == 0 else recorded
        if _GROWS.search(name) and not (apart and engine > 0):
            return recorded * grown if name.endswith("_sum") else float(int(recorded * grown))
        return recorded


def _padding(size: int) -> bytes:
    """About `size` bytes of series that are none of vLLM's."""
    line = 'http_request_duration_seconds_bucket{handler="/v1/route/%06d",le="0.5",method="POST"} %d.0\n'
    return "".join(line % (number, number) for number in range(max(0, size) // len(line % (0, 0)))).encode()


def serve(engines: int, load: str, size: int) -> None:
    """Serve until the standard input ends; says where on the standard output."""
    page, begun, lock = GrowingPage(engines, load, size), time.monotonic(), threading.Lock()
    made: list[tuple[int, bytes]] = [(-1, b"")]
    times: list[float] = []

    def metrics(connection: Connection, request: Request) -> bool:
        times.append(time.monotonic())
        second = int(times[-1] - begun)
        with lock:
            if made[0][0] != second:
                made[0] = second, page.at(second)
        return answer(made[0][1])(connection, request)

    with PageServer(status(404)) as server:

        def counts(connection: Connection, request: Request) -> bool:
            seen = Counter(asked.path for asked in server.requests if asked.path not in (COUNTS, TIMES))
            return answer(json.dumps(seen), content_type="application/json")(connection, request)

        models = {"id": "tiny", "object": "model", "root": "./tiny", "max_model_len": 4096, "parent": None}
        server.routes |= {
            "/metrics": metrics,
            COUNTS: counts,
            TIMES: lambda connection, request: answer(json.dumps(times))(connection, request),
            "/health": answer(""),
            "/version": answer('{"version":"0.32.0"}', content_type="application/json"),
            "/v1/models": answer(json.dumps({"object": "list", "data": [models]}), content_type="application/json"),
        }
        print(server.url, flush=True)
        sys.stdin.read()


class Served:
    """The serving process, as who measures sees it."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.url = url
        self._process = process

    def requests(self) -> dict[str, int]:
        """How often each path has been asked for."""
        with urlopen(self.url + COUNTS, timeout=10) as response:
            counts: dict[str, int] = json.load(response)
        return counts

    def times(self) -> list[float]:
        """When the page was asked for, by the monotonic clock of this machine."""
        with urlopen(self.url + TIMES, timeout=10) as response:
            times: list[float] = json.load(response)
        return times

    def down(self) -> None:
        """Be gone: the port refuses from here on."""
        self._process.kill()
        self._process.wait()


@contextmanager
def served(engines: int = 2, load: str = "moving", size: int = 0) -> Iterator[Served]:
    """A server in a process of its own, so that its work is nobody's else's."""
    command = [sys.executable, "-m", "bench.served", "--engines", str(engines), "--load", load, "--bytes", str(size)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Served(process, process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--load", choices=LOADS, default="moving")
    parser.add_argument("--bytes", type=int, default=0)
    options = parser.parse_args()
    serve(options.engines, options.load, options.bytes)


if __name__ == "__main__":
    main()
