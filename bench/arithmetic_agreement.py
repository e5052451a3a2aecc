"""Measure how well the arithmetic agrees with vLLM, and write the table of docs/arithmetic.md.

python -m bench.arithmetic_agreement            print the table
python -m bench.arithmetic_agreement --write    put it into docs/arithmetic.md
"""

import csv
import json
import re
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.kv.architecture import read_architecture
from exporter.kv.budget import GIB, default_limits, estimate_budget
from exporter.kv.options import EngineOptions
from exporter.kv.sizing import held_blocks, size_architecture
from exporter.kv.weights import count_weights
from exporter.plan.gpus import gpu_bytes

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "kv"
DOCUMENT = ROOT / "docs" / "arithmetic.md"
BEGIN, END = "<!-- agreement: written by bench/arithmetic_agreement.py -->", "<!-- end of agreement -->"
_GPUS = {
    "A100-80GB": "A100-80GB",
    "A100-40GB": "A100-40GB",
    "H100-80GB": "H100",
    "H100-80GB x4": "H100",
    "L40S x4": "L40S",
    "L40S 46GB": "L40S",
    "L4 (22 GiB usable)": "L4",
    "L4 x2": "L4",
    "RTX 4090 x2": "RTX-4090",
    "RTX PRO 4500 x8": "RTX-PRO-4500",
}
_NOT_UNIFORM = {"L10", "L11", "L29"}
"""A draft layer in the pool, a figure of another rank, tokens multiplied by decode-context parallelism."""


def reference() -> list[tuple[str, int, int]]:
    """(figure, cases that agree exactly, cases that state it) over the reference cases."""
    names = ("num_gpu_blocks", "bytes_per_block", "block_size", "kv_cache_size_tokens", "max_concurrency")
    agree: dict[str, list[bool]] = {name: [] for name in names}
    agree |= {"blocks per request and group": [], "blocks held, every context": []}
    agree |= {"weight parameters": [], "weight bytes within 0.5 %": []}
    for case in reference_cases():
        expected, options = case["expected"], case_options(case)
        architecture = read_architecture(case["config"])
        pool = size_architecture(architecture, options, case["available_bytes"])
        for name in names:
            agree[name].append(abs(getattr(pool, name) - expected[name]) <= 1e-9)
        per_group = expected["blocks_per_request_at_max_model_len"]
        agree["blocks per request and group"].append(list(pool.blocks_per_request) == per_group)
        held = expected["blocks_held_at_context"]
        agree["blocks held, every context"].append(held == {n: held_blocks(pool, options, int(n)) for n in held})
        if "weight_bytes_per_rank" in expected:
            weights = count_weights(architecture, options)
            agree["weight parameters"].append(weights.parameters == expected["weight_params_per_rank"])
            ratio = weights.bytes / expected["weight_bytes_per_rank"]
            agree["weight bytes within 0.5 %"].append(abs(ratio - 1) <= 0.005)
    return [(name, sum(found), len(found)) for name, found in agree.items()]


def reference_cases() -> list[dict[str, Any]]:
    """Every reference case of both files."""
    found: list[dict[str, Any]] = []
    for name in ("truth.json", "truth_more.json"):
        if (DATA / name).exists():
            found += json.loads((DATA / name).read_text(encoding="utf-8"))["cases"]
    return found


def case_options(case: dict[str, Any]) -> EngineOptions:
    """The flags of a reference case."""
    names = ("kv_cache_dtype", "tensor_parallel_size", "pipeline_parallel_size", "block_size", "async_scheduling")
    return EngineOptions(
        max_model_len=case["max_model_len"],
        max_num_batched_tokens=case["expected"]["max_num_batched_tokens"],
        **{name: case[name] for name in names if name in case},
    )


def starts() -> list[dict[str, Any]]:
    """Each logged start whose model is known: errors of weights, of available KV and of tokens, as ratios."""
    known = json.loads((DATA / "models.json").read_text(encoding="utf-8"))
    with (DATA / "boot_logs.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["id"] in known["rows"]]
    return [_start(row, known["models"][known["rows"][row["id"]]]) for row in rows]


def _start(row: dict[str, str], config: dict[str, Any]) -> dict[str, Any]:
    match = re.match(r"(\d+)\.(\d+)", row["vllm_version"])
    version = (int(match[1]), int(match[2])) if match else (0, 10)
    options = EngineOptions(
        max_model_len=int(row["max_model_len"] or 32768),
        tensor_parallel_size=int(row["tp"] or 1),
        pipeline_parallel_size=int(row["pp"] or 1),
        kv_cache_dtype="fp8" if row["kv_dtype"].startswith("fp8") else "auto",
    )
    architecture = read_architecture(config)
    weights = count_weights(architecture, options)
    result: dict[str, Any] = {"id": row["id"], "model": row["model"], "weights": None, "kv": None, "tokens": None}
    if row["weights_gib"]:
        result["weights"] = weights.bytes / GIB / float(row["weights_gib"]) - 1
    total = _total(row)
    if total is not None and row["available_kv_gib"]:
        batched, seqs = default_limits(row["gpu"], total)
        budget = estimate_budget(
            architecture,
            replace(options, max_num_batched_tokens=batched),
            weights,
            total=total,
            utilization=float(row["gpu_mem_util"] or (0.92 if version >= (0, 24) else 0.9)),
            max_num_seqs=seqs,
            version=version,
        )
        result["kv"] = budget.kv / GIB / float(row["available_kv_gib"]) - 1
        low, high = budget.kv_range
        result["kv_in_range"] = low <= float(row["available_kv_gib"]) * GIB <= high
    if row["available_kv_gib"] and row["kv_cache_tokens"] not in ("", "0") and row["id"] not in _NOT_UNIFORM:
        pool = size_architecture(architecture, options, int(float(row["available_kv_gib"]) * GIB))
        result["tokens"] = pool.kv_cache_size_tokens / float(row["kv_cache_tokens"]) - 1
    return result


def _total(row: dict[str, str]) -> int | None:
    if row["gpu_total_gib"]:
        return int(float(row["gpu_total_gib"]) * GIB)
    return gpu_bytes(_GPUS[row["gpu"]])[1] if row["gpu"] in _GPUS else None


def table() -> str:
    """The measured agreement as Markdown."""
    cases = reference_cases()
    lines = [f"Against vLLM 0.32.0's own code, {len(cases)} configurations:", "", "| figure | exact |", "|---|---|"]
    lines += [f"| {name} | {right} of {stated} |" for name, right, stated in reference()]
    rows = starts()
    errors = {name: [row[name] for row in rows if row[name] is not None] for name in ("weights", "kv", "tokens")}
    middle = {name: statistics.median(abs(error) for error in found) for name, found in errors.items()}
    inside = sum(bool(row.get("kv_in_range")) for row in rows)
    lines += [
        "",
        "Against what real servers logged at start (versions 0.6 to 0.29, no figure of the log used):",
        "",
        "| figure | starts | median error | largest |",
        "|---|---|---|---|",
    ]
    names = {"weights": "weights", "kv": "available KV", "tokens": "tokens from the logged GiB, uniform models"}
    for name, label in names.items():
        largest = max(errors[name], key=abs)
        lines.append(f"| {label} | {len(errors[name])} | {middle[name]:.2%} | {largest:+.2%} |")
    lines += [
        "",
        f"The logged KV memory lies within the estimated range in {inside} of {len(errors['kv'])} starts.",
        "",
    ]
    lines += ["| start | model | weights | available KV | tokens |", "|---|---|---|---|---|"]
    for row in rows:
        cells = [f"{row[name]:+.1%}" if row[name] is not None else "" for name in ("weights", "kv", "tokens")]
        lines.append(f"| {row['id']} | {row['model']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def written(document: str) -> str:
    """The document with its table renewed."""
    before, rest = document.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(table())
