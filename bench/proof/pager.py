"""From a real vLLM that fills up to a page: `VLLM_ENV=DIR python -m bench.proof.pager [--runs 1] [--save]`.

Every part but PagerDuty is the real one: vLLM on the CPU under a burst on top of a steady load, `vllm-headroom run`
beside it, Prometheus with the committed rules, Alertmanager with the committed routing; PagerDuty is a receiver on
loopback that refuses what PagerDuty's API would refuse. A forward pass takes at least as long as told, as a
real model's does; a tiny one's takes three milliseconds, and then no scrape could keep up.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.proof.chart import timeline
from bench.proof.section import Picture, Section, Table, here
from tests.grafana.pagerduty import PagerDuty
from tests.grafana.stack import alertmanager, prometheus
from tests.grafana.story import KEY, RULES, WHERE, committed, configured
from tests.support.tools import tool
from tests_vllm.exporter import Exporter
from tests_vllm.load import Load
from tests_vllm.paced import PacedServer
from tests_vllm.tiny import make_model

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "img"
FLAGS = ("--num-gpu-blocks-override", "1280", "--served-model-name", "tiny")
PROMPT, OUTPUT = 300, 1500
USUAL, JOINING, STEADY, BURST = 20, 2.5, 8, 15
"""Chats at once and seconds between the first of them; how many must have ended, and how many come on top then."""
LONGEST = 300.0
NOT_FORESEEN = (
    "Not every load gives that much time. Arrivals that only come faster and faster, which nobody can foresee from a "
    "page, were tried twice on the same machine under other work: the alarm was on 9 s and 2 s before the first "
    "preemption, and the page came 10 s and 23 s after it (scraping every 5 s and every 2 s; Alertmanager waits 10 s "
    "to gather alerts)."
)
"""Of an earlier form of this bench, which sent such a load."""
AFTER_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Run:
    """One ramp; seconds from its start, `None` for what did not happen. `lines` are what the picture shows."""

    burst: float | None
    alarm: float | None
    page: float | None
    severity: str | None
    summary: str
    preempted: float | None
    refused: int
    usage_at_page: float | None
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def lead(self) -> float | None:
        """Seconds from the page to the first preemption."""
        return self.preempted - self.page if self.page is not None and self.preempted is not None else None


def ramp(home: Path, seed: int, scrape_seconds: float, step_seconds: float, shot: Path | None) -> Run:
    """One server, one burst, until some seconds after both page and preemption; `shot` is taken at the page."""
    with contextlib.ExitStack() as stack:
        server = PacedServer(make_model(home / "tiny"), home, "vllm", *FLAGS, pace=step_seconds)
        stack.enter_context(server)
        duty = stack.enter_context(PagerDuty(KEY))
        config = configured(committed("alertmanager.yml"), duty, home)
        router = stack.enter_context(alertmanager(home / "alertmanager", config))
        exporter = stack.enter_context(Exporter(server.url, home / "exporter.log", gpus="none", host="none"))
        target = {"llm/vllm-headroom": [(exporter.url.removeprefix("http://"), WHERE)]}
        stack.enter_context(prometheus(home / "prometheus", target, RULES, [router], scrape_seconds=scrape_seconds))
        load = stack.enter_context(Load(server, seed=seed))
        begun = time.time()
        due, until = begun, begun + LONGEST
        preempted: float | None = None
        burst: float | None = None
        taken = shot is None
        while (now := time.time()) < until:
            usual = len(load.live()) - (BURST if burst else 0)
            if usual < USUAL and now >= due:
                load.send(PROMPT, OUTPUT)
                due = now + (JOINING if len(load.sent) < USUAL else 0.0)
            if burst is None and sum(one.done for one in load.sent) >= STEADY:
                burst = now
                for _ in range(BURST):
                    load.send(PROMPT, OUTPUT)
            preempted = next((one.at for one in server.events(begun) if one.event == "preempted"), None)
            if not taken and duty.accepted and shot is not None:
                photograph(exporter.url, shot)
                taken = True
            if preempted is not None and duty.accepted:
                until = min(until, max(preempted, duty.accepted[0].time) + AFTER_SECONDS)
            time.sleep(0.1)
        readings = exporter.since(begun)
    paged = duty.accepted[0] if duty.accepted else None
    usage = [(one.ended - begun, one.value("kv_used_ratio", engine="0") or 0.0) for one in readings]
    sixty = {"engine": "0", "risk": "kv", "horizon_seconds": "60"}
    odds = [(one.ended - begun, one.value("oom_probability", **sixty)) for one in readings]
    page_at = paged.time - begun if paged else None
    return Run(
        burst=burst - begun if burst else None,
        alarm=next((one.ended - begun for one in readings if one.predicted), None),
        page=page_at,
        severity=str(paged.payload["severity"]) if paged else None,
        summary=str(paged.payload["summary"]) if paged else "",
        preempted=preempted - begun if preempted else None,
        refused=len(duty.refused),
        usage_at_page=next((ratio for at, ratio in reversed(usage) if page_at is not None and at <= page_at), None),
        lines={
            "KV cache in use": [(round(at, 1), round(ratio, 4)) for at, ratio in usage],
            "probability of exhaustion within 60 s": [
                (round(at, 1), round(value, 4)) for at, value in odds if value is not None
            ],
        },
    )


def photograph(url: str, path: Path) -> None:
    """The status page as a browser shows it now."""
    from playwright.sync_api import sync_playwright

    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=tool("chromium", "chromium"), args=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{url}/?window=300")
        page.screenshot(path=path)
        browser.close()


def section(runs: Sequence[Run], options: argparse.Namespace, version: str) -> Section:
    """The runs as a section of docs/proof.md."""

    def at(seconds: float | None) -> str:
        return "–" if seconds is None else f"{seconds:.0f} s"

    before = sum(run.lead is not None and run.lead > 0 for run in runs)
    rows = tuple(
        (
            number,
            at(run.burst),
            at(run.alarm),
            f"{at(run.page)} ({run.severity or '–'})",
            "–" if run.usage_at_page is None else f"{run.usage_at_page:.0%}",
            at(run.preempted),
            "–" if run.lead is None else f"{run.lead:+.1f} s",
        )
        for number, run in enumerate(runs, 1)
    )
    return Section(
        order=40,
        title="From vLLM to the pager",
        text=(
            f"Real Prometheus (scraping and evaluating every {options.scrape_seconds:g} s) with the committed rules, "
            "real Alertmanager with the committed routing, a receiver on loopback that accepts what PagerDuty's API "
            f"accepts. {USUAL} chats at once, each a prompt of {PROMPT} tokens and an answer of {OUTPUT:,}, hold "
            f"about half of a pool of 1,280 blocks of 32 tokens; then {BURST} more come at once, which fit at first "
            f"and cannot once they have grown. A forward pass takes at least {1000 * options.step_seconds:.0f} ms, as "
            f"a real model's does. The page came before the first preemption in {before} of {len(runs)} runs.",
            f"What the pager was told: “{runs[0].summary}”",
            NOT_FORESEEN,
        ),
        command=f"python -m bench.proof.pager --runs {len(runs)} --save",
        ran=here(version),
        tables=(
            Table(
                ("run", "burst", "alarm on", "page received", "pool in use then", "first preemption", "page ahead by"),
                rows,
            ),
        ),
        pictures=(
            Picture(
                "img/proof-pager.svg", "The first run: usage, probability, and when alarm, page and preemption came"
            ),
            Picture("img/proof-status.png", "The exporter's status page beside the real server as the page arrives"),
        ),
        figures={"runs": [{k: v for k, v in asdict(run).items() if k != "lines"} for run in runs]},
    )


def picture(run: Run) -> str:
    """The timeline of a run."""
    marks: dict[str, Any] = {
        "burst": run.burst,
        "alarm": run.alarm,
        "page received": run.page,
        "first preemption": run.preempted,
    }
    seconds = max(at for line in run.lines.values() for at, _ in line)
    return timeline(run.lines, {name: at for name, at in marks.items() if at is not None}, seconds)


def main() -> int:
    """Print each run; 0 when every page came before the first preemption."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--scrape-seconds", type=float, default=2.0)
    parser.add_argument("--step-seconds", type=float, default=0.03)
    parser.add_argument("--save", action="store_true", help="write the section of docs/proof.md and its pictures")
    options = parser.parse_args()
    runs: list[Run] = []
    for seed in range(options.runs):
        with tempfile.TemporaryDirectory() as place:
            shot = PICTURES / "proof-status.png" if options.save and not seed else None
            runs.append(ramp(Path(place), seed, options.scrape_seconds, options.step_seconds, shot))
        run = runs[-1]
        print(f"alarm {run.alarm}, page {run.page}, first preemption {run.preempted}, ahead {run.lead}", flush=True)
    if options.save:
        (PICTURES / "proof-pager.svg").write_text(picture(runs[0]), encoding="utf-8")
        from bench.proof.versions import installed

        section(runs, options, installed("vllm").partition("+")[0]).save("pager")
    return 0 if all(run.lead is not None and run.lead > 0 for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
