"""The outcomes as tables for people."""

import datetime
import os
import platform
from collections.abc import Sequence

from bench.peers.trial import Outcome, capacity_verdict, kv_verdict, rate_verdict

HEAD = (
    "| | reads every | memory, MiB | CPU, % of a core | requests to vLLM a second | a scrape, ms: median, p99 "
    "| KV of each engine | tokens of the pool | preemptions a second | when vLLM is gone | SIGTERM |"
)
SHORT_HEAD = (
    "| | memory | CPU | KV of each of two engines | pool in tokens | preemptions a second | when vLLM is gone |"
)
BEGIN, END = "<!-- peers: python -m bench.peers --write -->", "<!-- /peers -->"


def _rule(head: str) -> str:
    return "|" + "---|" * (head.count("|") - 1)


def long_table(outcomes: Sequence[Outcome]) -> str:
    """Everything that was measured and asked, a line each."""
    return "\n".join([HEAD, _rule(HEAD), *map(_long_row, outcomes)])


def _long_row(outcome: Outcome) -> str:
    rival, cost = outcome.rival, outcome.cost
    name = f"**{rival.name}** {outcome.version}" if rival.name == "vllm-headroom" else f"{rival.name} {outcome.version}"
    if cost is None:
        return f"| {name} | " + " | ".join(["–"] * 10) + " |"
    scrape = "serves none"
    if cost.scrape_p50 is not None and cost.scrape_p99 is not None:
        scrape = f"{cost.scrape_p50:.1f}, {cost.scrape_p99:.1f} (`{rival.page}`)"
    cells = [
        name,
        f"{rival.seconds_between_readings:.0f} s",
        f"{cost.rss_mib:.0f}",
        f"{cost.cpu_percent:.1f}",
        f"{cost.requests_per_second:.1f}",
        scrape,
        kv_verdict(outcome.said),
        capacity_verdict(outcome.said),
        rate_verdict(outcome.said, rival.rate_words),
        outcome.when_down,
        outcome.when_ended,
    ]
    return "| " + " | ".join(cells) + " |"


def short_table(outcomes: Sequence[Outcome], warning: str) -> str:
    """What fits into the README."""
    rows = [SHORT_HEAD, _rule(SHORT_HEAD)]
    for outcome in outcomes:
        cost, said = outcome.cost, outcome.said
        if cost is None:
            continue
        name = outcome.rival.name
        cells = [
            f"**{name}**" if name == "vllm-headroom" else f"{name} {outcome.version}",
            f"{cost.rss_mib:.0f} MiB",
            f"{cost.cpu_percent:.1f} %",
            kv_verdict(said),
            capacity_verdict(said),
            rate_verdict(said, outcome.rival.rate_words.partition(";")[0]),
            outcome.when_down,
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join([*rows, *(["", f"Not to be quoted: {warning}."] if warning else [])])


def better(outcomes: Sequence[Outcome]) -> list[str]:
    """Where somebody takes less than this project, said as it is."""
    mine = next((outcome for outcome in outcomes if outcome.rival.name == "vllm-headroom"), None)
    if mine is None or mine.cost is None:
        return []
    others = [(outcome.rival.name, outcome.cost) for outcome in outcomes if outcome is not mine and outcome.cost]
    memory, cpu = mine.cost.rss_mib - 0.5, mine.cost.cpu_percent - 0.05
    lighter = sorted((cost.rss_mib, name) for name, cost in others if cost.rss_mib < memory)
    cheaper = sorted((cost.cpu_percent, name) for name, cost in others if cost.cpu_percent < cpu)
    said = []
    if lighter:
        told = ", ".join(f"{name} ({memory:.0f} MiB)" for memory, name in lighter)
        said.append(f"- Less memory than vllm-headroom's {mine.cost.rss_mib:.0f} MiB: {told}.")
    if cheaper:
        told = ", ".join(f"{name} ({percent:.1f} %)" for percent, name in cheaper)
        said.append(f"- Less CPU than vllm-headroom's {mine.cost.cpu_percent:.1f} % of a core: {told}.")
    return said


def page(outcomes: Sequence[Outcome], warning: str) -> str:
    """docs/peers.md; `warning` says what is wrong with its times, if anything."""
    today = datetime.datetime.now(datetime.UTC).date()
    left_out = [o for o in outcomes if o.cost is None]
    lines = [
        "# Beside the others",
        "",
        "Every monitor of vLLM that PyPI offers, one after the other beside the same recorded page, in one run:",
        "",
        "    python -m bench.peers --write",
        "",
        "The page is one that vLLM 0.32 wrote, with two engines: the first 98 % full with two preemptions a second,",
        "the second empty and idle, each with a pool of 8,192 tokens. Counters and histograms grow every second as on",
        "the recorded page. Each monitor is the newest on PyPI, alone in an environment of its own, run as its",
        "documentation says, in a terminal.",
        "",
        f"Measured on {today}, Python {platform.python_version()}, {os.cpu_count()} cores, after 70 s of running.",
        "Memory is what is resident, CPU is user and system time of the process, a scrape is one GET over a kept",
        "connection. *right* and *wrong* are held against the page; what is *not offered* is not held against anybody.",
        *([f"**Not to be quoted**: {warning}."] if warning else []),
        "",
        long_table([o for o in outcomes if o.cost is not None]),
        "",
        "## Where another is better",
        "",
        *(better(outcomes) or ["- Nowhere, of what was measured."]),
        "",
        "They do less: none foretells when a pool will be full, and none serves a page that Prometheus can read. The",
        "larger part of our memory is Python's numpy and HTTP, and what the forecast rolls its futures out in.",
        "",
        "## How each was run",
        "",
        *(f"- {o.rival.name} {o.version} ({o.rival.what}): `{o.rival.run_as}`" for o in outcomes if o.cost is not None),
        "",
        "Not to be run here:",
        "",
        *(f"- {o.rival.name} {o.version} ({o.rival.what}): {o.why_not}" for o in left_out),
        "",
    ]
    return "\n".join(lines)
