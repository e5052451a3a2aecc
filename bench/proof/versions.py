"""One release of vLLM, tried: `VLLM_ENV=DIR python -m bench.proof.versions` (scripts/add-vllm-version makes the DIR).

A tiny model is served with a pool of 256 blocks, `vllm-headroom run` beside it. Checked: which names the page has for
what is read; lone requests of known lengths hold the blocks that the arithmetic says; the pool is the arithmetic's; a
rising load is preempted, and whether the alarm was on before. The quiet page and the page with a full pool are kept in
tests/data/expositions with the flags, and the release becomes a row of the matrix in docs/proof.md.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.proof.section import RESULTS, Section, Table, here
from tests.support.daemon import Page
from tests_vllm.exporter import Exporter
from tests_vllm.holding import cache_labels, compare, plan, sample
from tests_vllm.load import Load
from tests_vllm.paced import USUAL, PacedServer
from tests_vllm.server import VllmServer
from tests_vllm.tiny import make_model

NAME = "versions"
PAGES = Path(__file__).parents[2] / "tests" / "data" / "expositions"
OVERRIDE = ("--num-gpu-blocks-override", "256")
PROMPTS = (29, 125, 300, 1030)
PROMPT, OUTPUT = 120, 900
GAP_SECONDS, LEAST_GAP, FASTER = 4.0, 0.5, 0.93
"""A request every four seconds at first, each gap a little shorter than the one before."""
RAMP_SECONDS = 100.0
EXPECTED = ("kv_usage", "running", "waiting", "preemptions", "prompt_tokens", "generation_tokens", "finished")


@dataclass(frozen=True, slots=True)
class Trial:
    """What one release showed. `lead_seconds`: alarm before the first preemption, `None` if it was not on before."""

    vllm: str
    torch: str
    on: str
    page_bytes: int
    usage_name: str
    missing: tuple[str, ...]
    capacity_source: str
    calibration: float | None
    contexts: int
    wrong: int
    pool_equal: bool
    preemptions: int
    exhausted: bool
    lead_seconds: float | None


def installed(package: str) -> str:
    """The version of a package in vLLM's environment."""
    python = Path(os.environ["VLLM_ENV"]) / "bin" / "python"
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def keep(page: str, name: str, model: Path) -> None:
    """Write a page to the data of the tests; the model's place on this machine becomes one that is the same for all."""
    (PAGES / name).write_text(page.replace(str(model), "./tiny"), encoding="utf-8")


def names(page: Page) -> dict[str, str]:
    """Concept → the name under which the exporter found it."""
    found = (dict(labels) for _, labels in page.values("source_info"))
    return {labels["concept"]: labels["name"] for labels in found}


def ramp(server: VllmServer, exporter: Exporter) -> tuple[int, bool, float | None, str]:
    """Load that rises until the pool has been full: preemptions, whether they were seen, the lead, the page then."""
    gap, alarm, full = GAP_SECONDS, None, ""
    begun = time.time()
    until = time.monotonic() + RAMP_SECONDS
    first: float | None = None
    due = time.monotonic()
    with Load(server, seed=3) as load:
        while time.monotonic() < until:
            if time.monotonic() >= due:
                load.send(PROMPT, OUTPUT)
                due, gap = time.monotonic() + gap, max(LEAST_GAP, gap * FASTER)
            page = server.page()
            now = time.time()
            alarm = alarm or next((one.ended for one in exporter.since(begun) if one.predicted), None)
            count = int(sample(page, "num_preemptions_total") or 0)
            if count and first is None:
                first, full = now, page
                until = time.monotonic() + 4
            time.sleep(0.1)
        exhausted = any(one.page.state() == "exhausted" for one in exporter.since(begun))
        count = int(sample(server.page(), "num_preemptions_total") or 0)
    lead = round(first - alarm, 1) if first and alarm and alarm < first else None
    return count, exhausted, lead, full


def blocks_before_override(log: str) -> int | None:
    """How many blocks vLLM had made of its memory, which only its log says where the flag gives another number."""
    found = re.search(r"Overriding num_gpu_blocks=(\d+) with", log)
    return int(found[1]) if found else None


def try_release(home: Path) -> Trial:
    """Everything, on one server."""
    version = installed("vllm").partition("+")[0]
    short = ".".join(version.split(".")[:2])
    model = make_model(home / "tiny")
    with PacedServer(model, home, "paced", *OVERRIDE) as server:
        with Load(server) as load:
            load.send(50, 20)
            load.wait(60)
        quiet = server.page()
        keep(quiet, f"vllm-{short}-cpu-one-engine-quiet.prom", model)
        pool, held = compare(server, home / "compared.log", *OVERRIDE, prompts=PROMPTS)
        made = blocks_before_override(server.log.read_text(encoding="utf-8", errors="replace"))
        with Exporter(server.url, home / "exporter.log", gpus="none", host="none") as exporter:
            preemptions, exhausted, lead, full = ramp(server, exporter)
            last = exporter.last.page
        if full:
            keep(full, f"vllm-{short}-cpu-one-engine-full.prom", model)
    found = names(last)
    source = next(dict(labels)["source"] for _, labels in last.values("kv_capacity_tokens"))
    labels = cache_labels(quiet)
    flags = [*USUAL, *OVERRIDE, "--max-model-len", "4096", "--load-format", "dummy", "--enforce-eager"]
    note = {"vllm": version, "torch": installed("torch"), "flags": flags, "num_gpu_blocks": labels["num_gpu_blocks"]}
    _record(f"vllm-{short}-cpu", note)
    return Trial(
        vllm=version,
        torch=installed("torch"),
        on=here(version)["on"],
        page_bytes=len(quiet.encode()),
        usage_name=found.get("kv_usage", "–"),
        missing=tuple(concept for concept in EXPECTED if concept not in found),
        capacity_source=source,
        calibration=pool.calibration,
        contexts=len(held),
        wrong=sum(not one.server == one.exporter == one.plan for one in held),
        pool_equal=pool.server == pool.plan and made == plan(model, ())["num_gpu_blocks"],
        preemptions=preemptions,
        exhausted=exhausted,
        lead_seconds=lead,
    )


def _record(prefix: str, note: dict[str, Any]) -> None:
    """Note with which release and flags the pages of a prefix were made."""
    path = PAGES / "recorded.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    known[prefix] = note
    path.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")


def section(trials: list[dict[str, Any]]) -> Section:
    """The matrix, newest release first."""
    newest = sorted(trials, key=lambda one: [int(part) for part in one["vllm"].split(".")[:3]], reverse=True)
    rows = tuple(
        (
            one["vllm"],
            one["torch"],
            one["on"],
            f"`{one['usage_name']}`",
            ", ".join(one["missing"]) or "all found",
            f"{one['contexts'] - one['wrong']} of {one['contexts']}",
            "equal" if one["pool_equal"] else "differs",
            "–" if one["calibration"] is None else f"{one['calibration']:.2f} ({one['capacity_source']})",
            f"{one['preemptions']}, {'seen' if one['exhausted'] else 'not seen'}",
            "not before" if one["lead_seconds"] is None else f"{one['lead_seconds']:.1f} s before",
        )
        for one in newest
    )
    columns = (
        "vLLM",
        "torch",
        "run on",
        "usage is called",
        "names of what is read",
        "blocks held as computed",
        "pool as computed",
        "calibration (capacity from)",
        "preemptions",
        "alarm and first preemption",
    )
    return Section(
        order=50,
        title="Releases of vLLM",
        text=(
            "Each release is served beside `vllm-headroom run`. Lone requests of known lengths must hold the blocks "
            "that the arithmetic says (by the server's page and by ours); the pool that vLLM makes of 1 GiB must be "
            "the one that `vllm-headroom plan` computes; a rising load must be seen to preempt; the last column is one "
            "ramp. The pages recorded on the way are inputs of the tests (`tests/data/expositions`).",
        ),
        command="scripts/add-vllm-version X.Y.Z",
        ran={"machine": here("")["machine"]},
        tables=(Table(columns, rows),),
        figures={"trials": newest},
    )


def main() -> int:
    """Try the release that VLLM_ENV holds; 0 when nothing was missing or wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        trial = try_release(Path(place))
    path = RESULTS / f"{NAME}.json"
    known = Section.load(path).figures["trials"] if path.exists() else []
    trials = [one for one in known if one["vllm"] != trial.vllm]
    section([*trials, asdict(trial)]).save(NAME)
    print(json.dumps(asdict(trial), indent=1))
    return 0 if not trial.missing and not trial.wrong and trial.pool_equal and trial.exhausted else 1


if __name__ == "__main__":
    sys.exit(main())
