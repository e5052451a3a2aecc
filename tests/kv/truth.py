"""The reference cases: what vLLM's own code computes for a config and its flags."""

import json
from pathlib import Path
from typing import Any

from exporter.kv.options import EngineOptions

DATA = Path(__file__).parents[1] / "data" / "kv"


def cases() -> list[dict[str, Any]]:
    """Every reference case of both files."""
    found: list[dict[str, Any]] = []
    for name in ("truth.json", "truth_more.json"):
        path = DATA / name
        if path.exists():
            found += json.loads(path.read_text(encoding="utf-8"))["cases"]
    return found


def config(case_id: str) -> dict[str, Any]:
    """The config of one case."""
    found: dict[str, Any] = next(case for case in cases() if case["id"] == case_id)["config"]
    return found


def options(case: dict[str, Any]) -> EngineOptions:
    """The flags of a case."""
    names = ("kv_cache_dtype", "tensor_parallel_size", "pipeline_parallel_size", "block_size", "async_scheduling")
    return EngineOptions(
        max_model_len=case["max_model_len"],
        max_num_batched_tokens=case["expected"]["max_num_batched_tokens"],
        **{name: case[name] for name in names if name in case},
    )
