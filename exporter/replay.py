"""The `replay` command: forecasts from a recording, one JSON line per reading and engine."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.errors import InputError
from exporter.forecast.assessment import Assessment, ForecastOptions, PoolView
from exporter.forecast.forecaster import EngineForecaster
from exporter.kv.demand import GroupDemand, RequestDemand
from exporter.reading import EngineReading
from exporter.sources.recording import Recording


def options_of(meta: Mapping[str, Any], seed: int = 0) -> ForecastOptions:
    """What a user would configure, as a recording's first line tells it."""
    engine = meta.get("engine", {})
    known = {
        k: engine[k] for k in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "watermark") if k in engine
    }
    return ForecastOptions(seed=seed, **known)


def pool_of(reading: EngineReading) -> PoolView | None:
    """The pool as the page tells it: all attention full, block 0 left out."""
    cache = reading.cache
    if cache is None or cache.num_gpu_blocks is None or cache.num_gpu_blocks < 2 or not cache.block_size:
        return None
    return PoolView(cache.num_gpu_blocks - 1, RequestDemand((GroupDemand(cache.block_size),)))


def assessments(recording: Recording, interval: float | None = None, seed: int = 0) -> Iterator[Assessment]:
    """Replay through the forecaster; `interval` thins the readings to one in that many seconds."""
    options = options_of(recording.meta(), seed)
    forecasters: dict[tuple[str, str], EngineForecaster] = {}
    due = float("-inf")
    for time, readings in recording.readings():
        if interval is not None and time < due - 1e-6:
            continue
        due = time + interval if interval is not None else due
        for reading in readings:
            key = reading.model_name, reading.engine
            if key not in forecasters:
                forecasters[key] = EngineForecaster(options)
            yield forecasters[key].observe(reading, pool_of(reading))


def line_of(assessment: Assessment, horizon: float) -> str:
    """The contract of `replay`: one JSON object."""
    return json.dumps(
        {
            "t": assessment.time,
            "engine": assessment.engine,
            "probability": assessment.probability.get(horizon),
            "predicted": assessment.predicted,
            "time_to_exhaustion_seconds": assessment.time_to_exhaustion_seconds,
            "state": assessment.state,
            "driver": assessment.driver,
        }
    )


def main(argv: Sequence[str]) -> int:
    """Run `replay RECORDING [--interval S] [--seed N]`; exit code 0, or 2 through an InputError."""
    parser = argparse.ArgumentParser(prog="vllm-headroom replay", description="Write forecasts from a recording.")
    parser.add_argument("recording", type=Path, help="NAME.jsonl.gz: one scrape a line")
    parser.add_argument("--interval", type=float, default=None, help="read only once in this many seconds")
    parser.add_argument("--seed", type=int, default=0, help="seed of the roll-outs")
    args = parser.parse_args(argv)
    if args.interval is not None and not args.interval > 0:
        raise InputError(f"--interval {args.interval:g}: must be a number of seconds above 0")
    horizon = ForecastOptions().page_horizon
    for assessment in assessments(Recording(args.recording), args.interval, args.seed):
        sys.stdout.write(line_of(assessment, horizon) + "\n")
    return 0
