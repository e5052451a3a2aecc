"""A small fleet under a real Prometheus, for the preview: `python -m grafana.preview.lab --minutes 10`.

Namespace `quiet` has calm engines, namespace `busy` one that is overloaded and one with bursts. Prints the URL of
Prometheus; fleet and Prometheus run on after the minutes given, so that the pictures can be taken while it lives.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from exporter.assembly import build_monitor
from exporter.demo.engine import DemoEngine, EngineConfig
from exporter.demo.gpu import DemoGpus
from exporter.demo.server import DemoServer
from exporter.demo.traffic import SCENARIOS
from exporter.memory import DeviceWatch
from exporter.run import Daemon
from exporter.settings import load
from exporter.sources.device import ProcessView
from exporter.sources.gpus import GpuSource
from tests.grafana.stack import prometheus

RULES = sorted((Path(__file__).parents[1] / "rules").glob("*.yaml"))
FLEET = (
    ("quiet", "chat-7d9f-0", "llama-3.1-8b", "calm", 1),
    ("quiet", "docs-5c2b-0", "llama-3.1-8b-docs", "calm", 2),
    ("busy", "chat-66b8-0", "llama-3.1-8b", "overload", 3),
    ("busy", "chat-66b8-1", "llama-3.1-8b", "burst", 4),
)


@contextlib.contextmanager
def exporter(model: str, scenario: str, seed: int) -> Iterator[str]:
    """An embedded engine on a GPU of its own, and the exporter beside it. Yields host:port of the exporter."""
    engine = DemoEngine(EngineConfig(model_name=model), SCENARIOS[scenario].requests(seed))
    with DemoServer([engine]) as server:
        limits = engine.config.limits
        settings = load(
            {
                "vllm_url": server.url,
                "listen": "127.0.0.1:0",
                "max_num_seqs": str(limits.max_num_seqs),
                "max_num_batched_tokens": str(limits.max_num_batched_tokens),
            }
        )
        mine = os.getpid()
        view = ProcessView(server=frozenset({mine}), visible=lambda other: other == mine)
        gpus = GpuSource(DemoGpus([limits.num_gpu_blocks], mine), processes=lambda _: view)
        with Daemon(build_monitor(settings, devices=DeviceWatch(gpus)), settings) as daemon:
            yield daemon.url.removeprefix("http://")


def main(arguments: list[str]) -> int:
    """Run the fleet; 0 at the end."""
    parser = argparse.ArgumentParser(prog="python -m grafana.preview.lab", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long the fleet runs before the picture is taken")
    parser.add_argument("--hold", type=float, default=10, help="how long Prometheus stays after that, in minutes")
    parser.add_argument("--port", type=int, default=9099, help="port of Prometheus")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that Prometheus ends with it
    with contextlib.ExitStack() as stack:
        targets = []
        for namespace, pod, model, scenario, seed in FLEET:
            host = stack.enter_context(exporter(model, scenario, seed))
            targets.append((host, {"namespace": namespace, "pod": pod}))
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(
            prometheus(home, {"llm/vllm-headroom": targets}, RULES, scrape_seconds=5, port=options.port)
        )
        print(url, flush=True)
        time.sleep((options.minutes + options.hold) * 60)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
