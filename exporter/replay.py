"""The `replay` command: forecasts from a recording, one JSON line per reading and engine."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.capacity import capacity_of, pool_of
from exporter.errors import InputError
from exporter.forecast.assessment import Assessment, ForecastOptions, PoolView
from exporter.forecast.forecaster import EngineForecaster
from exporter.reading import EngineReading
from exporter.sources.recording import Recording


def _count(value: float) -> bool:
    return isinstance(value, int) and 1 <= value < 2**40


_LIMITS: Mapping[str, Callable[[float], bool]] = {
    "max_num_seqs": _count,
    "max_num_batched_tokens": _count,
    "max_model_len": _count,
    "watermark": lambda value: 0 <= value < 1,
}


def options_of(meta: Mapping[str, Any], seed: int = 0) -> ForecastOptions:
    """What a user would configure, as a recording's first line tells it."""
    engine = meta.get("engine")
    told: Mapping[str, Any] = engine if isinstance(engine, Mapping) else {}
    known = {name: told[name] for name in _LIMITS if told.get(name) is not None}
    for name, value in known.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not _LIMITS[name](value):
            raise InputError(f"the recording's {name} is {str(value)[:80]!a}, which no engine was started with")
    return ForecastOptions(seed=seed, **known)


def pool_in(reading: EngineReading, max_model_len: int | None) -> PoolView | None:
    """The pool as the page alone tells it; a recording has no config.json beside it."""
    return pool_of(reading.cache, capacity_of(reading.cache, None, max_model_len), None)


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
            yield forecasters[key].observe(reading, pool_in(reading, options.max_model_len))


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
