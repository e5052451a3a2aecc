"""Who would have woken you, and when: these alerts beside the thresholds people use today, on the same traffic.

`python -m bench.alerts_compare` runs the embedded engine in its own time through each scenario, reads its page and the
exporter's as a Prometheus that scrapes every 15 s would, writes both into a real Prometheus, evaluates every rule there
every 15 s with its `for`, and prints the table as Markdown. Plus is the seconds an alert stood before the first
preemption, minus how long after it the alert came. An alert that no preemption follows within two minutes of its end is
a false alarm.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from exporter.assembly import build_monitor
from exporter.demo.engine import DemoEngine, EngineConfig
from exporter.demo.page import PageCollector
from exporter.demo.scheduler import Request
from exporter.demo.server import DemoServer
from exporter.demo.traffic import SCENARIOS, Scenario, Stream, _chat
from exporter.metrics import SnapshotCollector
from exporter.settings import load
from grafana.build import rule_files
from grafana.mixin.thresholds import Thresholds
from tests.grafana.stack import prometheus

STEP = 15
FOLLOWS = 120
START = 1_700_000_000 // STEP * STEP
Series = dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[int, float]]]


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario: what happens, and the requests of each engine of one server."""

    name: str
    engines: tuple[Callable[[int], Iterator[Request]], ...]
    seconds: int = 600


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert as a person would write it: a query and how long it must hold."""

    name: str
    expr: str
    hold: int


def _until(busy: float, calm: float, start: float, end: float) -> Callable[[int], Iterator[Request]]:
    """Chat at `calm` requests a second, and at `busy` from `start` to `end`."""
    rate = lambda now: busy if start <= now < end else calm  # noqa: E731
    return Scenario("", "", "", (Stream(rate, max(busy, calm), _chat),)).requests


def _named(name: str) -> Callable[[int], Iterator[Request]]:
    return SCENARIOS[name].requests


CASES = (
    Case("calm, a third of the pool", (_named("calm"),)),
    Case("busy, two thirds of the pool", (_until(2.7, 2.7, 0, 1),)),
    Case("bursts of 12 s", (_named("burst"),)),
    Case("long documents join a steady chat", (_named("long-context"),)),
    Case("overload for 5 minutes", (_until(5.0, 2.0, 300, 600),), seconds=900),
    Case("overload that stays", (_named("overload"),), seconds=1200),
    Case(
        "one of two engines overloaded, the other idle",
        (_until(5.0, 2.0, 300, 900), _until(0.3, 0.3, 0, 1)),
        seconds=900,
    ),
)

TODAY = (
    Rule("usage > 0.9 for 10 m, averaged by pod", "avg by (pod) (vllm:kv_cache_usage_perc) > 0.9", 600),
    Rule("usage > 0.9 for 1 m", "vllm:kv_cache_usage_perc > 0.9", 60),
    Rule("rate(vllm:num_preemptions) > 0, without _total", "rate(vllm:num_preemptions[5m]) > 0", 0),
    Rule("rate(vllm:num_preemptions_total) > 0 for 5 m", "rate(vllm:num_preemptions_total[5m]) > 0", 300),
    Rule("predict_linear(usage[10m], 600) > 1 for 1 m", "predict_linear(vllm:kv_cache_usage_perc[10m], 600) > 1", 60),
)


def ours() -> Iterator[Rule]:
    """Our alerts of the KV pool, as committed."""
    for rule in yaml.safe_load(rule_files(Thresholds())["kv.yaml"])["groups"][0]["rules"]:
        hold = rule.get("for", "0s")
        seconds = int(hold[:-1]) * {"s": 1, "m": 60}[hold[-1]]
        name = rule["alert"].removeprefix("VLLMHeadroom")
        yield Rule(f"**{name}** ({rule['labels']['severity']})", rule["expr"], seconds)


def record(case: Case, seed: int) -> tuple[Series, list[int]]:
    """Both pages every 15 s of engine time, and the seconds in which requests were preempted."""
    engines = [
        DemoEngine(EngineConfig(engine=str(index)), requests(seed + index))
        for index, requests in enumerate(case.engines)
    ]
    series: Series = {}
    preempted: list[int] = []
    count = 0
    with DemoServer(engines, speed=0) as server:
        limits = engines[0].config.limits
        flags = {"max_num_seqs": str(limits.max_num_seqs), "max_num_batched_tokens": str(limits.max_num_batched_tokens)}
        settings = load({"vllm_url": server.url, "gpus": "none", "host": "none", **flags})
        monitor = build_monitor(settings, server.now, lambda: START + server.now())
        registry = CollectorRegistry(auto_describe=False)
        registry.register(SnapshotCollector(lambda: monitor.latest))
        registry.register(PageCollector(engines, START))
        for second in range(1, case.seconds + 1):
            server.advance(1.0)
            monitor.tick()
            before, count = count, sum(engine.preempted for engine in engines)
            if count > before:
                preempted.append(second)
            if second % STEP == 0:
                _scrape(registry, START + second, series)
        monitor.close()
    return series, preempted


def _scrape(registry: CollectorRegistry, at: int, series: Series) -> None:
    for family in registry.collect():
        for sample in family.samples:
            if sample.name.endswith(("_bucket", "_created")):
                continue
            key = sample.name, tuple(sorted(sample.labels.items()))
            series.setdefault(key, []).append((at, float(sample.value)))


def _openmetrics(series: Series, file: Path) -> None:
    """The samples as `promtool tsdb create-blocks-from openmetrics` reads them."""
    where = 'job="vllm-headroom",instance="10.0.0.1:9488",namespace="llm",pod="chat-0"'
    with file.open("w") as out:
        for (name, labels), samples in series.items():
            own = "".join(f",{key}={json.dumps(value)}" for key, value in labels)
            for at, value in samples:
                out.write(f"{name}{{{where}{own}}} {value!r} {at}\n")
        out.write("# EOF\n")


def episodes(url: str, rule: Rule, seconds: int) -> list[tuple[int, int]]:
    """From when to when the alert fires, for any series: the query has been met at every evaluation for `hold`."""
    parameters = urllib.parse.urlencode(
        {"query": rule.expr, "start": START + STEP, "end": START + seconds, "step": STEP}
    )
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{parameters}", timeout=60) as response:
        result = json.load(response)["data"]["result"]
    firing: set[int] = set()
    for one in result:
        since, previous = 0, -STEP
        for moment, _ in one["values"]:
            at = int(moment) - START
            since = at if at - previous > STEP else since
            previous = at
            if at - since >= rule.hold:
                firing.add(at)
    found: list[tuple[int, int]] = []
    for at in sorted(firing):
        if found and at - found[-1][1] <= STEP:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found


def compare(case: Case, rules: Sequence[Rule], seed: int) -> list[str]:
    """One row of the table for each rule: when it first fired, beside the first preemption."""
    print(case.name, file=sys.stderr, flush=True)
    series, preempted = record(case, seed)
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        home = Path(temporary)
        _openmetrics(series, home / "data.om")
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(home / "data.om"), str(home / "data")]
        subprocess.run(command, check=True, capture_output=True)
        url = stack.enter_context(prometheus(home, {}, retention="100y"))
        cells = [_cell(episodes(url, rule, case.seconds), preempted) for rule in rules]
    return [f"{case.name}: {f'first preemption at {preempted[0]} s' if preempted else 'no preemption'}", *cells]


def _cell(fired: Sequence[tuple[int, int]], preempted: Sequence[int]) -> str:
    """When it spoke of the first preemption, and how often of none."""
    true = [(a, b) for a, b in fired if any(a <= at <= b + FOLLOWS for at in preempted)]
    false = len(fired) - len(true)
    said = [f"{preempted[0] - true[0][0]:+d} s" if true else "never"] if preempted else []
    said += [f"{false} false alarm{'s' * (false > 1)}"] if false else []
    return ", ".join(said) or "–"


def main(arguments: Sequence[str]) -> int:
    """Print the table; 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.alerts_compare", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="another seed is other traffic (0)")
    seed = parser.parse_args(arguments).seed
    rules = (*TODAY, *ours())
    columns = [compare(case, rules, seed) for case in CASES]
    print("| alert | " + " | ".join(column[0] for column in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for i, rule in enumerate(rules, start=1):
        print(f"| {rule.name} | " + " | ".join(column[i] for column in columns) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
