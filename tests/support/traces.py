"""Recorded schedules of the real engine, and the embedded one set up as it was."""

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.demo.engine import DemoEngine, EngineConfig, StepTime
from exporter.demo.scheduler import Limits, Request

DATA = Path(__file__).parents[1] / "data" / "demo"
LOADS = tuple(sorted(path.name.removeprefix("vllm-").removesuffix(".jsonl.gz") for path in DATA.glob("vllm-*.gz")))


@dataclass(frozen=True, slots=True)
class Trace:
    """One load with what vLLM did with it; `steps` are lists as `README.md` beside the data says."""

    config: EngineConfig
    requests: tuple[Request, ...]
    steps: tuple[list[Any], ...]

    def engine(self) -> DemoEngine:
        """The embedded engine, fed with the same requests."""
        return DemoEngine(self.config, self.requests)


def trace(load: str) -> Trace:
    """The recorded schedule of a load."""
    lines = list(read_lines(DATA / f"vllm-{load}.jsonl.gz"))
    requests = tuple(Request(**line) for line in lines[1:] if isinstance(line, dict))
    return Trace(config(lines[0]["engine"]), requests, tuple(line for line in lines if isinstance(line, list)))


def sharegpt_recording() -> Iterator[tuple[float, dict[str, float]]]:
    """The recorded page at every second: time and all samples by name with labels."""
    page: dict[str, float] = {}
    for line in read_lines(DATA / "sharegpt-4090.jsonl.gz"):
        if "s" in line:
            page.update(line["s"])
            yield line["t"], page


def sharegpt_preemptions() -> list[tuple[float, int]]:
    """When forward passes preempted, and how many, to the millisecond."""
    events = next(line["events"] for line in read_lines(DATA / "sharegpt-4090.jsonl.gz") if "events" in line)
    return [(time, count) for time, count in events]


def sharegpt_engine() -> DemoEngine:
    """The embedded engine with the recording's limits and requests."""
    meta = next(read_lines(DATA / "sharegpt-4090.jsonl.gz"))["meta"]
    with (DATA / "sharegpt-requests.csv").open() as rows:
        requests = [
            Request(float(row["arrival_seconds"]), int(row["prompt_tokens"]), int(row["output_tokens"]))
            for row in csv.DictReader(rows)
        ]
    return DemoEngine(config(meta["engine"]), requests)


def config(engine: dict[str, Any]) -> EngineConfig:
    """The embedded engine's configuration for a recorded one."""
    limits = Limits(
        num_gpu_blocks=engine["num_gpu_blocks"],
        block_size=engine.get("block_size", 16),
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        max_model_len=engine["max_model_len"],
        watermark=engine.get("watermark", 0.0),
        prefix_caching=engine["prefix_caching"],
    )
    times = StepTime(engine["step_t0"], engine["step_per_token"], engine["step_per_kv_token"])
    return EngineConfig(limits=limits, step_time=times)


def read_lines(path: Path) -> Iterator[Any]:
    """The objects of a gzipped file, one a line."""
    with gzip.open(path, "rt") as lines:
        yield from map(json.loads, lines)
