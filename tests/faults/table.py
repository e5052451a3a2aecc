"""The table of faults: read from table.toml, made into docs/faults.md."""

import json
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOAK = HERE.parents[1] / "bench" / "soak.json"
SHARED = ("state", "series", "recovery", "reason", "proof")

HEAD = """\
# What goes wrong, and what happens then

Made from `tests/faults/table.toml` by `python docs/build.py`. Whatever happens, our page stays up, says what is true
and no more, recovers by itself, and loses no counter: `forecasts_total`, `ticks_total`, `host_oom_kills_total` and
their like go on from where they were. A source that is down says so in `source_up`, says why in `source_down_reason`,
and takes its own series with it and nobody else's.

"Within two ticks" means two whole ticks after the fault is over; a tick that is under way may still have met it. Three
things are deliberately looked for less often than that: a driver that is away, a model's config.json, and the kubelet's
word on whose the GPUs are. An engine that has been gone for 15 minutes is forgotten: its `forecasts_total` begin at 0
when it comes back, as a counter's do after a restart.

"Out of memory" means that allocations fail. A container over its limit is killed by the kernel instead; what keeps ours
below it are bounds on every body, every line, and the number of engines, series and models.
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """One source under one fault; `no` says why there is no such thing."""

    source: str
    fault: str
    no: str = ""
    state: str = ""
    series: str = ""
    recovery: str = ""
    reason: str = ""
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Faults and sources with their names for people, and every pair of them that the file has."""

    faults: dict[str, str]
    sources: dict[str, str]
    usual: dict[str, Pair]
    """Of each source, what is said of every pair that says nothing else."""
    pairs: tuple[Pair, ...]

    def of(self, source: str, fault: str) -> Pair:
        """The pair."""
        return next(pair for pair in self.pairs if (pair.source, pair.fault) == (source, fault))


def read(path: Path = HERE / "table.toml") -> Table:
    """The table as it is committed."""
    told: dict[str, dict[str, Any]] = tomllib.loads(path.read_text())
    faults = told.pop("faults")
    pairs = []
    usual = {}
    for source, rows in told.items():
        shared = {key: rows[key] for key in SHARED if key in rows}
        usual[source] = Pair(source, "", **shared)
        pairs += [
            Pair(source, fault, **(row if "no" in row else shared | row))
            for fault, row in rows.items()
            if isinstance(row, dict)
        ]
    return Table(faults, {source: rows["title"] for source, rows in told.items()}, usual, tuple(pairs))


def faults_page() -> str:
    """docs/faults.md."""
    table = read()
    lines = [HEAD]
    for source, title in table.sources.items():
        pairs = [table.of(source, fault) for fault in table.faults]
        usual = table.usual[source]
        lines += [f"## {title}", ""]
        lines += [f"Usually: {usual.state}. Series: {usual.series}. Recovery: {usual.recovery}.", ""]
        lines += ["| fault | state | series | reason | recovery | proof |", "|---|---|---|---|---|---|"]
        lines += [_row(table.faults[pair.fault], pair, usual) for pair in pairs if not pair.no]
        excluded = [f"{table.faults[pair.fault].split(':')[0]}: {pair.no}" for pair in pairs if pair.no]
        if excluded:
            lines += ["", "Does not apply:", "", *(f"- {each}." for each in excluded)]
        lines.append("")
    return "\n".join([*lines, *_soak()])


def _row(fault: str, pair: Pair, usual: Pair) -> str:
    file, _, test = pair.proof.partition("::")
    proof = f"[{test.removeprefix('test_').replace('_', ' ')}](../{file})"
    reason = ", ".join(f"`{each.strip()}`" for each in pair.reason.split(",") if each.strip() not in ("", "…"))
    told = [
        "as usual" if said == always else said.replace("as above", "as usual")
        for said, always in (
            (pair.state, usual.state),
            (pair.series, usual.series),
            (pair.recovery, usual.recovery),
        )
    ]
    return f"| {fault} | {told[0]} | {told[1]} | {reason or '–'} | {told[2]} | {proof} |"


def _soak() -> list[str]:
    """What the last soak found, as `python -m bench.soak` wrote it down."""
    if not SOAK.exists():
        return []
    told = json.loads(SOAK.read_text())
    samples = told["samples"]
    settled = samples[1:]
    columns = ("hour", "resident_mib", "held_mib", "series", "most_series", "engines")
    shown = [sample for sample in samples if round(sample["hour"]) in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24)]

    def spread(name: str) -> str:
        values = [sample[name] for sample in settled]
        return f"{min(values)} to {max(values)} MiB"

    paragraph = (
        f"`{told['command']}` (vllm-headroom {told['version']}, Python {told['python']}): {told['hours']} hours of "
        f"virtual time with a reading every {told['interval']:g} s. Engines come and go, every hour has a model of its "
        "own, there are storms of names never seen before, outages of every kind, restarts with kills, sleep, a lost "
        f"GPU, jumps of both clocks, and scrapes all the while. {told['ticks']:,} ticks, {told['late_ticks']} of them "
        "late because an answer was. Once what is free has been given back, as the daemon does every hour, the "
        f"process holds {spread('resident_mib')} after the first hour, of which the daemon's own objects are "
        f"{spread('held_mib')}; the rest is Python, the libraries and the simulated world."
    )
    return [
        "## Soak",
        "",
        *textwrap.wrap(paragraph, 118, break_on_hyphens=False, break_long_words=False),
        "",
        "| at the end of hour | resident, MiB | the daemon's objects, MiB | series | most series | engines |",
        "|---|---|---|---|---|---|",
        *("| " + " | ".join(f"{sample[name]:g}" for name in columns) + " |" for sample in shown),
        "",
        "Found wrong: " + ("; ".join(told["wrong"]) if told["wrong"] else "nothing grew, drifted or was lost") + ".",
        "",
        *([*textwrap.wrap(told["note"], 118), ""] if "note" in told else []),
    ]
