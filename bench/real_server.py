"""Drive a real vLLM server with requests of known lengths and write down its page: the input of a comparison.

    python -m bench.real_server URL FILE [--requests 90] [--rate 1] [--burst 30] [--seed 0]

The server must be fresh, serve nobody else and be started with the flags in the first line of what is written, which is
`tests/data/demo/real-server.jsonl.gz`'s form: the flags; a line for each request; a line for each reading:
`[seconds, usage, running, waiting, preemptions, forward passes, finished]`.
"""

import argparse
import asyncio
import gzip
import json
import random
import re
import time
from pathlib import Path
from typing import Any

import httpx

FLAGS = "--max-model-len 4096 --block-size 32 --num-gpu-blocks-override 256 --max-num-batched-tokens 2048"
ENGINE = {
    "num_gpu_blocks": 256,
    "block_size": 32,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
    "max_model_len": 4096,
    "prefix_caching": True,
    "step_t0": 1.0,
    "step_per_token": 0.0,
    "step_per_kv_token": 0.0,
}
SERIES = (
    "num_requests_running",
    "num_requests_waiting",
    "num_preemptions_total",
    "iteration_tokens_total_count",
    "request_generation_tokens_count",
)
VOCABULARY = 500
READING_SECONDS = 0.3


def value(page: str, name: str) -> float:
    found = re.search(rf"^vllm:{name}\{{[^}}]*\}} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def read(client: httpx.AsyncClient, begun: float, rows: list[list[float]]) -> None:
    """Read the page over and over until cancelled."""
    while True:
        asked = time.monotonic()
        page = (await client.get("/metrics")).text
        counts = [int(value(page, name)) for name in SERIES]
        rows.append([round(time.monotonic() - begun, 3), round(value(page, "kv_cache_usage_perc"), 6), *counts])
        await asyncio.sleep(max(0.0, READING_SECONDS - (time.monotonic() - asked)))


async def drive(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[list[float]]]:
    rng = random.Random(options.seed)
    requests: list[dict[str, Any]] = []
    rows: list[list[float]] = []
    limits = httpx.Limits(max_connections=options.requests + 1)
    async with httpx.AsyncClient(base_url=options.url, timeout=600, limits=limits) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]
        begun = time.monotonic()
        reading = asyncio.create_task(read(client, begun, rows))
        sending = []
        for number in range(options.requests):
            prompt = [rng.randrange(VOCABULARY) for _ in range(min(3000, int(rng.lognormvariate(5, 0.9)) + 1))]
            output = rng.randint(100, 700)
            body = {"model": model, "prompt": prompt, "max_tokens": output, "ignore_eos": True}
            sent = round(time.monotonic() - begun, 4)
            requests.append({"sent": sent, "prompt_tokens": len(prompt), "output_tokens": output})
            sending.append(asyncio.create_task(client.post("/v1/completions", json=body)))
            burst = options.requests // 3 <= number < options.requests // 3 + options.burst
            # Never two at once, so that the order in which they reach the engine is the order here.
            await asyncio.sleep(0.15 if burst else 0.15 + rng.expovariate(options.rate))
        for answer in await asyncio.gather(*sending):
            answer.raise_for_status()
        await asyncio.sleep(2.0)
        reading.cancel()
    return requests, rows


def write(file: Path, requests: list[dict[str, Any]], rows: list[list[float]]) -> None:
    """Write a run in its form."""
    lines = [json.dumps({"server": FLAGS, "engine": ENGINE}), *map(json.dumps, [*requests, *rows])]
    with file.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(("\n".join(lines) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--requests", type=int, default=90)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--burst", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    requests, rows = asyncio.run(drive(options))
    write(options.file, requests, rows)
    print(f"{len(requests)} requests, {len(rows)} readings, {rows[-1][4]:.0f} preemptions")


if __name__ == "__main__":
    main()
