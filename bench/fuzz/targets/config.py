"""A model's config.json: what `plan` answers, and what the daemon makes of it."""

import functools
import json
import zlib

from bench.fuzz.mutation import json_mutator
from bench.fuzz.target import Target
from exporter.errors import InputError
from exporter.forecast.allocations import next_allocations
from exporter.kv.live import live_arithmetic
from exporter.plan.answer import as_json, make_plan
from exporter.plan.arguments import Request, parse_arguments
from exporter.plan.text import render
from exporter.reading import CacheConfig
from exporter.sources.model_config import parse_config
from tests.kv.truth import cases

CACHE = CacheConfig(block_size=16, num_gpu_blocks=1000, kv_cache_size_tokens=16_000, kv_cache_max_concurrency=4.0)


@functools.cache
def requests() -> tuple[Request, ...]:
    """Three ways of asking that differ in what they compute."""
    common = ["--model-config", "x", "--allow-long-max-model-len", "--context", "1000"]
    return (
        parse_arguments([*common, "--gpu", "H100"]),
        parse_arguments([*common, "--kv-memory-bytes", "1Gi", "--max-model-len", "4096", "--kv-cache-dtype", "fp8"]),
        parse_arguments(
            [*common, "--gpu-memory-bytes", "80Gi", "--tensor-parallel-size", "2", "--quantization", "fp8"]
        ),
    )


def check(data: bytes) -> None:
    """It is planned or refused; what is planned can be written down; the daemon refuses with the same error."""
    config = parse_config(data, "config.json")
    # One way an input, told by the input itself: all of them take twenty times as long.
    way = zlib.crc32(data) % 20
    if way < 10:
        plan = make_plan(config, requests()[way % 3])
        answer = as_json(plan)
        assert answer["num_gpu_blocks"] >= 0
        json.dumps(answer, allow_nan=False)
    elif way < 12:
        text = render(make_plan(config, requests()[way % 2]), config, colour=False)
        assert len(text) < 20_000
        assert all(line.isprintable() for line in text.splitlines()), f"what no terminal should be sent: {text!r}"
    else:
        next_allocations(config, max_num_batched_tokens=2048, max_num_seqs=256, tensor_parallel_size=1, lora_rank=None)
        found = live_arithmetic(config, CACHE if way < 15 else CacheConfig(), max_model_len=4096)
        assert found.bytes_per_block > 0


def seeds() -> list[bytes]:
    """Every reference config, as small as it can be written."""
    return sorted({json.dumps(case["config"], separators=(",", ":")).encode() for case in cases()})


@functools.cache
def keys() -> tuple[str, ...]:
    """Every key of every reference config, at any depth."""
    found: set[str] = set()

    def gather(value: object) -> None:
        if isinstance(value, dict):
            found.update(value)
            for inner in value.values():
                gather(inner)
        elif isinstance(value, list):
            for inner in value:
                gather(inner)

    for case in cases():
        gather(case["config"])
    return tuple(sorted(found))


TARGET = Target(
    name="config",
    check=check,
    seeds=seeds,
    tokens=tuple(f'"{key}":'.encode() for key in keys()),
    mutate=json_mutator(keys()),
    allowed=(InputError,),
    longest=16_384,
)
