"""An overload and its recovery, from the engine to two PagerDuties: the one story that test and bench tell.

Every part but PagerDuty is the real one: the embedded engine serves vLLM's page, `vllm-headroom run` reads it as a
process of its own, Prometheus evaluates the committed rules, and two Alertmanagers route with the committed
configurations, the plain one and what the Prometheus Operator makes of the AlertmanagerConfig. Only
`keep_firing_for` is shortened, so that recovery fits into a test.
"""

import contextlib
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from exporter.demo.engine import DemoEngine
from exporter.demo.scheduler import Request
from exporter.demo.server import DemoServer
from tests.grafana.pagerduty import Event, PagerDuty, as_operator
from tests.grafana.stack import alertmanager, free_port, prometheus, running

GRAFANA = Path(__file__).parents[2] / "grafana"
RULES = sorted((GRAFANA / "rules").glob("*.yaml"))
KEY = "e93facc04764012d7bfb002500d5d1a6"
WHERE = {"namespace": "llm", "pod": "chat-0"}
PAST, CALM, LASTING = 80, 28, 30
"""Seconds of engine time: before the exporter starts, until the burst comes, and until all traffic ebbs away."""
BURST = 15
LONGEST = 170.0


def traffic() -> Iterator[Request]:
    """A chat every 2.5 s, which fills half of the pool; then 15 at once, too many for the rest; then hardly any."""
    burst, end = PAST + CALM, PAST + CALM + LASTING
    steady = [Request(2.5 * i, 300, 1500) for i in range(int(end / 2.5))]
    at_once = [Request(burst + 0.2 * i, 300, 1500) for i in range(BURST)]
    ebb = [Request(end + 4.0 * i, 200, 60) for i in range(100)]
    return iter(sorted([*steady, *at_once, *ebb], key=lambda request: request.arrival))


@dataclass(frozen=True, slots=True)
class Story:
    """What happened: the first preemption, in Unix seconds, and each PagerDuty's events."""

    preempted: float | None
    events: Mapping[str, Sequence[Event]]
    refused: Sequence[Sequence[str]]
    seconds: float


def committed(name: str) -> dict[str, Any]:
    """A file of grafana/alertmanager/ as it is committed."""
    config: dict[str, Any] = yaml.safe_load((GRAFANA / "alertmanager" / name).read_text())
    return config


def configured(config: dict[str, Any], pagerduty: PagerDuty, home: Path) -> dict[str, Any]:
    """A committed configuration with the key's file and PagerDuty's address of this test."""
    key = home / "routing-key"
    key.write_text(KEY)
    (receiver,) = config["receivers"][1]["pagerduty_configs"]
    receiver["routing_key_file"] = str(key)
    return config | {"global": {"pagerduty_url": pagerduty.url}}


def quick(rules: Sequence[Path], home: Path) -> list[Path]:
    """The committed rules, but that an alert ends ten seconds after its cause."""
    copies = []
    for file in rules:
        copy = home / file.name
        copy.write_text(re.sub(r"keep_firing_for: \w+", "keep_firing_for: 10s", file.read_text()))
        copies.append(copy)
    return copies


def tell(home: Path) -> Story:
    """Run it once, with its files in `home`: until both incidents are resolved, or the time is up."""
    engine = DemoEngine(arrivals=traffic())
    began = time.time()
    preempted: float | None = None
    with contextlib.ExitStack() as stack:
        duties = {name: stack.enter_context(PagerDuty(KEY)) for name in ("plain", "operator")}
        resource = as_operator(committed("alertmanagerconfig.yaml"), WHERE["namespace"], "")
        configs = {"plain": committed("alertmanager.yml"), "operator": resource}
        routers = [
            stack.enter_context(alertmanager(home / name, configured(configs[name], duties[name], home)))
            for name in duties
        ]
        server = stack.enter_context(DemoServer([engine]))
        server.advance(PAST)
        port = free_port()
        limits = engine.config.limits
        command = [sys.executable, "-m", "exporter", "run", "--vllm-url", server.url, "--listen", f"127.0.0.1:{port}"]
        command += ["--gpus", "none", "--host", "none", "--max-num-seqs", str(limits.max_num_seqs)]
        stack.enter_context(running(command, f"http://127.0.0.1:{port}/readyz", home / "exporter.log"))
        target = {"llm/vllm-headroom": [(f"127.0.0.1:{port}", WHERE)]}
        stack.enter_context(
            prometheus(
                home / "prometheus",
                target,
                quick(RULES, home),
                routers,
                scrape_seconds=2,
            )
        )
        while time.time() - began < LONGEST:
            time.sleep(0.1)
            if preempted is None and engine.preempted:
                preempted = time.time()
            if all(duty.accepted and duty.accepted[-1].action == "resolve" for duty in duties.values()):
                break
        events = {name: tuple(duty.accepted) for name, duty in duties.items()}
        refused = [fault for duty in duties.values() for fault in duty.refused]
    return Story(preempted, events, refused, time.time() - began)
