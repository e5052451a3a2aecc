"""The whole daemon for two ticks: a page and a list of models in, our metrics page and status document out.

An input is a page, a line `---`, and what the server answers to `/v1/models`.
"""

import functools
import json
import logging
from pathlib import Path
from random import Random

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench.fuzz.mutation import json_mutator
from bench.fuzz.target import Target
from bench.fuzz.targets import page
from exporter.forecast.allocations import next_allocations
from exporter.forecast.assessment import ForecastOptions
from exporter.history import History
from exporter.kv.live import live_arithmetic
from exporter.models import ServedModels
from exporter.monitor import Monitor
from exporter.routes import Routes
from exporter.server import Request
from exporter.snapshot import Snapshot
from exporter.sources.endpoint import Access
from exporter.sources.model_config import find_model_config
from exporter.sources.vllm import VllmSource
from exporter.watch import ServerWatch
from tests.support.expositions import TWO_ENGINES, exposition
from tests.support.releases import RELEASES, page_of

CUT = b"\n---\n"
CONFIG = Path(__file__).parents[3] / "exporter" / "demo" / "model" / "config.json"
MODELS = b'{"data":[{"id":"m","root":"org/m","max_model_len":4096}]}'
MODEL_KEYS = ("data", "id", "root", "parent", "max_model_len")


class Clock:
    """A clock that only its owner moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def daemon(body: bytes, models: bytes, clock: Clock) -> Monitor:
    """The daemon's own parts, with the network taken away."""

    def answer(request: httpx.Request) -> httpx.Response:
        told = body if request.url.path == "/metrics" else models
        return httpx.Response(200, headers={"content-length": str(len(told))}, stream=httpx.ByteStream(told))

    source = VllmSource("http://vllm:8000", Access(), transport=httpx.MockTransport(answer), clock=clock)
    served = ServedModels(
        source.read_models,
        lambda names: find_model_config(names, configured=CONFIG, environment={}),
        lambda config, cache, length: live_arithmetic(config, cache, max_model_len=length),
        lambda config: next_allocations(
            config, max_num_batched_tokens=None, max_num_seqs=None, tensor_parallel_size=1, lora_rank=None
        ),
    )
    watch = ServerWatch(source, served, ForecastOptions(), clock)
    return Monitor([watch], None, None, clock, lambda: 1_795_980_000.0)


class Served:
    """Our own pages, which take long to set up and show whatever snapshot is the latest."""

    def __init__(self) -> None:
        self.latest: Snapshot | None = None
        self.clock = Clock()
        self.history = History()
        self.routes = Routes(lambda: self.latest, self.history, self.clock, 10.0)


@functools.cache
def served() -> Served:
    """One for the whole process."""
    return Served()


def check(data: bytes) -> None:
    """No tick fails, the page is one that prometheus_client reads, the status document is JSON, the forecast lives."""
    logging.disable(logging.CRITICAL)  # a failing tick is told by what it raises, not by a million lines
    try:
        _check(data)
    finally:
        logging.disable(logging.NOTSET)


def _check(data: bytes) -> None:
    body, _, models = data.partition(CUT)
    pages = served()
    monitor = daemon(body, models, pages.clock)
    for _ in range(2):
        snapshot = monitor.tick()
        pages.history.add(snapshot)
        pages.clock.now += 1.0
    pages.latest = snapshot
    for engine in snapshot.engines:
        assert "the forecast failed" not in engine.assessment.reason, engine.assessment.reason
    routes = pages.routes
    metrics = routes(Request("GET", "/metrics", "", {})).body.decode()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            assert sample.value == sample.value, f"{sample.name} is not a number"
    json.loads(routes(Request("GET", "/api/v1/status", "", {})).body)
    html = routes(Request("GET", "/", "", {})).body.decode()
    assert html.count("<script") == 1
    monitor.close()


def seeds() -> list[bytes]:
    """Gauges, cache and some histograms of every release, beside a list of models."""
    pages = [page_of(version) for version in RELEASES] + [exposition(TWO_ENGINES)]
    short = (
        "running",
        "waiting",
        "usage_perc",
        "cache_config",
        "preemptions",
        "_tokens_total",
        "_count",
        "_sum",
        "success",
    )
    kept = ("\n".join(line for line in text.splitlines() if any(word in line for word in short)) for text in pages)
    return [line.encode()[:6000] + CUT + MODELS for line in kept]


def mutate(data: bytes, chance: Random) -> bytes:
    """Change the page or the models."""
    body, cut, models = data.partition(CUT)
    if chance.random() < 0.2:
        return body + cut + json_mutator(MODEL_KEYS)(models, chance)
    return page.mutate(body, chance) + cut + models


TARGET = Target(
    name="tick",
    check=check,
    seeds=seeds,
    tokens=page.TOKENS,
    mutate=mutate,
    allowed=(),
    longest=8192,
)
