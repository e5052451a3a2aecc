"""What vLLM's own scheduler does with loads that are each hard on one rule: the traces in tests/data/demo.

    python -m bench.vllm_scheduler DIRECTORY      in an environment that has vLLM 0.32 for the CPU, and this project

Only the duration of a forward pass is modelled, with the constants of the load; time is virtual, so that a trace takes
seconds. Every forward pass is written down as it is at its end.
"""

import argparse
import gzip
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from tests_vllm.tiny import LLAMA

Engine = dict[str, Any]
Arrival = dict[str, Any]
Load = tuple[Engine, list[Arrival]]

MODEL = {**LLAMA, "max_position_embeddings": 131072}
"""Never loaded; the scheduler wants to know that there is a model."""

BASE: Engine = {
    "max_model_len": 4096,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 512,
    "num_gpu_blocks": 300,
    "block_size": 16,
    "step_t0": 0.02,
    "step_per_token": 0.0001,
    "step_per_kv_token": 3e-7,
    "prefix_caching": True,
}


def chats(rng: random.Random, rate: float, count: int) -> list[Arrival]:
    return [
        {"arrival": t, "prompt_tokens": lengths(rng, 5, 0.8), "output_tokens": lengths(rng, 4.5, 0.7)}
        for t in arrivals(rng, rate, count)
    ]


def arrivals(rng: random.Random, rate: float, count: int) -> Iterator[float]:
    now = 0.0
    for _ in range(count):
        now += rng.expovariate(rate)
        yield round(now, 4)


def lengths(rng: random.Random, mean: float, spread: float) -> int:
    return int(rng.lognormvariate(mean, spread)) + 1


def sharing(rng: random.Random, rate: float, count: int, pick: Callable[[], tuple[str | None, int]]) -> list[Arrival]:
    load = []
    for t in arrivals(rng, rate, count):
        prefix, shared = pick()
        one = {
            "arrival": t,
            "prompt_tokens": shared + rng.randint(1, 120),
            "output_tokens": lengths(rng, 4.2, 0.7),
        }
        load.append(one | ({"prefix": prefix, "prefix_tokens": shared} if shared else {}))
    return load


def loads() -> dict[str, Load]:
    """Each is hard on one rule."""
    systems = {"a": 400, "b": 250, "c": 64}
    rng = [random.Random(seed) for seed in range(10)]
    burst = [
        {"arrival": t, "prompt_tokens": rng[2].randint(20, 200), "output_tokens": rng[2].randint(20, 150)}
        for t in [*arrivals(rng[2], 1.5, 30), *(8 + 0.001 * n for n in range(40))]
    ]
    spikes = [
        {"arrival": t, "prompt_tokens": rng[7].choice([30, 60, 1500, 2500]), "output_tokens": rng[7].randint(5, 200)}
        for t in arrivals(rng[7], 2.5, 90)
    ]
    twins = []
    for t in arrivals(rng[8], 14, 150):
        prompt = rng[8].choice([16, 32, 48, 160, 480])
        shared = prompt if rng[8].random() < 0.6 else prompt // 2
        output = rng[8].choice([1, 2, 16, 17, 40])
        twins.append(
            {"arrival": t, "prompt_tokens": prompt, "output_tokens": output, "prefix": "p", "prefix_tokens": shared}
        )
    endless = [
        {"arrival": t, "prompt_tokens": rng[9].randint(1, 1900), "output_tokens": 4000}
        for t in arrivals(rng[9], 0.4, 6)
    ]
    return {
        "overload": (BASE | {"num_gpu_blocks": 180}, chats(rng[1], 4, 120)),
        "burst": (
            BASE | {"prefix_caching": False, "num_gpu_blocks": 250},
            sorted(burst, key=lambda one: float(one["arrival"])),
        ),
        "shared-prefix": (
            BASE | {"num_gpu_blocks": 120},
            sharing(rng[3], 4, 120, lambda: rng[3].choice([*systems.items(), (None, 0)])),
        ),
        "conversations": (
            BASE | {"num_gpu_blocks": 90},
            sharing(rng[4], 3, 100, lambda: (f"c{rng[4].randint(0, 9)}", rng[4].randint(0, 600))),
        ),
        "watermark": (BASE | {"watermark": 0.05, "num_gpu_blocks": 160}, chats(rng[5], 4, 120)),
        "sequence-cap": (BASE | {"max_num_seqs": 8, "num_gpu_blocks": 130}, chats(rng[6], 5, 120)),
        "prefill-spike": (BASE | {"num_gpu_blocks": 130, "block_size": 32, "max_num_batched_tokens": 256}, spikes),
        "identical-prompts": (BASE | {"num_gpu_blocks": 45}, twins),
        "context-limit": (BASE | {"max_model_len": 2048, "num_gpu_blocks": 300}, endless),
    }


def real_scheduler(engine: Engine, model: str) -> Any:
    limits = {"max_model_len": engine["max_model_len"]}
    config = VllmConfig(
        model_config=ModelConfig(model=model, dtype="float32", seed=0, skip_tokenizer_init=True, **limits),
        scheduler_config=SchedulerConfig(
            max_num_seqs=engine["max_num_seqs"],
            max_num_batched_tokens=engine["max_num_batched_tokens"],
            watermark=engine.get("watermark", 0.0),
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
            **limits,
        ),
        cache_config=CacheConfig(block_size=engine["block_size"], enable_prefix_caching=engine["prefix_caching"]),
    )
    config.cache_config.num_gpu_blocks = engine["num_gpu_blocks"]
    spec = FullAttentionSpec(block_size=engine["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32)
    pool = KVCacheConfig(engine["num_gpu_blocks"], kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["l"], spec)])
    return Scheduler(
        vllm_config=config,
        kv_cache_config=pool,
        structured_output_manager=StructuredOutputManager(config),
        block_size=engine["block_size"],
        log_stats=True,
    )


def tokens(one: Arrival, number: int) -> list[int]:
    """Token ids: the same for the same prefix, of nobody else beyond it."""
    shared = int(one.get("prefix_tokens", 0))
    stream = 10_000_000 + (sum(map(ord, str(one.get("prefix")))) % 9973) * 200_000
    return [stream + n for n in range(shared)] + [
        -(number * 1_000_000 + n) for n in range(shared, one["prompt_tokens"])
    ]


def trace(engine: Engine, load: list[Arrival], model: str) -> Iterator[list[Any]]:
    """One line for each forward pass, as the README beside the traces says."""
    init_none_hash(sha256)
    hasher = get_request_block_hasher(engine["block_size"], sha256)
    scheduler = real_scheduler(engine, model)
    pool = scheduler.kv_cache_manager.block_pool
    now, taken, hits, queries = 0.0, 0, 0, 0
    while taken < len(load) or scheduler.requests:
        if not scheduler.requests:
            now = max(now, load[taken]["arrival"])
        while taken < len(load) and load[taken]["arrival"] <= now:
            one = load[taken]
            parameters = SamplingParams(max_tokens=one["output_tokens"], ignore_eos=True)
            scheduler.add_request(
                Request(str(taken), tokens(one, taken), parameters, None, arrival_time=now, block_hasher=hasher)
            )
            taken += 1
        output = scheduler.schedule()
        ids = list(output.num_scheduled_tokens)
        requests = [scheduler.requests[name] for name in ids]
        sampled = [
            [-(int(one.request_id) * 1_000_000 + 500_000 + one.num_output_tokens)]
            if one.num_computed_tokens >= one.num_tokens
            else []
            for one in requests
        ]
        resident = sum(one.num_computed_tokens for one in requests)
        new = output.total_num_scheduled_tokens
        now += engine["step_t0"] + engine["step_per_token"] * new + engine["step_per_kv_token"] * resident
        result = ModelRunnerOutput(ids, {name: n for n, name in enumerate(ids)}, sampled, pooler_output=[])
        answers = scheduler.update_from_output(output, result)
        if answers:
            seen = next(iter(answers.values())).scheduler_stats.prefix_cache_stats
            hits, queries = hits + seen.hits, queries + seen.queries
        used = engine["num_gpu_blocks"] - 1 - pool.get_num_free_blocks()
        preempted = sorted(int(name) for name in output.preempted_req_ids or ())
        finished = sorted(int(name) for name in scheduler.finished_req_ids)
        counts = [new, len(scheduler.running), len(scheduler.waiting), used]
        yield [round(now, 6), *counts, preempted, finished, hits, queries]


def write(path: Path, name: str, load: Load, model: str) -> None:
    lines = [json.dumps({"load": name, "engine": load[0]}), *map(json.dumps, load[1])]
    lines += [json.dumps(step, separators=(",", ":")) for step in trace(*load, model)]
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(("\n".join(lines) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    with tempfile.TemporaryDirectory() as model:
        (Path(model) / "config.json").write_text(json.dumps(MODEL))
        for name, load in loads().items():
            write(directory / f"vllm-{name}.jsonl.gz", name, load, model)
            print(name)


if __name__ == "__main__":
    main()
