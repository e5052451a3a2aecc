"""What a real server holds for one request of a known length, beside what the arithmetic says of it."""

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests_vllm.exporter import Exporter
from tests_vllm.load import Load, Sent
from tests_vllm.server import VllmServer

KV_BYTES = 2**30
BATCHED_TOKENS = 2048
MAX_MODEL_LEN = 4096
BLOCK_SIZE = 32
FLAGS = (
    *("--max-model-len", str(MAX_MODEL_LEN), "--block-size", str(BLOCK_SIZE)),
    *("--max-num-batched-tokens", str(BATCHED_TOKENS)),
)
"""The pool is left to the server: 1 GiB, of which it makes as many blocks as fit."""
PROMPTS = (29, 125, 300, 509, 1030, 2400)
LONG_OUTPUT = 1500
QUIET_SECONDS = 0.4
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Held:
    """Blocks at one context: what the server's page shows, what the exporter made of it, what the plan says."""

    context: int
    server: int
    exporter: int | None
    plan: int


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool as the server's page states it, and as the plan works it out from config.json and flags alone."""

    server: Mapping[str, float]
    plan: Mapping[str, float]
    calibration: float | None
    groups: str


def sample(page: str, name: str) -> float | None:
    """The one sample of a family of vLLM's page."""
    found = re.search(rf"^vllm:{name}(?:\{{[^}}]*\}})? (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else None


def cache_labels(page: str) -> dict[str, str]:
    """The labels of `cache_config_info`."""
    found = re.search(r"^vllm:cache_config_info\{(.*)\}", page, re.MULTILINE)
    assert found, "the page has no cache_config_info"
    return dict(re.findall(r'(\w+)="([^"]*)"', found[1]))


def usable_blocks(page: str) -> int:
    """Blocks that requests can hold: all but the null block."""
    return int(cache_labels(page)["num_gpu_blocks"]) - 1


def used_blocks(page: str) -> int:
    """Blocks held now, from the ratio that the page shows."""
    usage = sample(page, "kv_cache_usage_perc")
    if usage is None:
        usage = sample(page, "gpu_cache_usage_perc")
    assert usage is not None, "the page shows no usage"
    return round(usage * usable_blocks(page))


def plan(model: Path, contexts: Sequence[int], *flags: str) -> dict[str, Any]:
    """`vllm-headroom plan --json` for the server's own flags."""
    command = [sys.executable, "-m", "exporter", "plan", "--json", "--model-config", str(model)]
    command += ["--kv-memory-bytes", str(KV_BYTES), *FLAGS, *flags]
    for context in contexts:
        command += ["--context", str(context)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def held(server: VllmServer, exporter: Exporter, prompts: Sequence[int] = PROMPTS) -> list[tuple[int, int, int | None]]:
    """For each prompt: the context of a lone request that decodes, and its blocks by page and by exporter.

    The engine is suspended while the page is read, so that page and stream speak of the same step. The last token
    sampled has no slot yet, so the context is one less than prompt and generated tokens together.
    """
    found = []
    with Load(server, seed=7) as load:
        for prompt in prompts:
            request = load.send(prompt, LONG_OUTPUT)
            _until(lambda request=request: request.generated() >= 3 or request.done, "the first tokens")
            server.suspend(engines_only=True)
            context, blocks = _settled(server, request)
            after = exporter.next().used
            server.resume()
            assert request.fault is None, request.fault
            found.append((context, blocks, None if after is None else round(after)))
            load.abort()
            _until(lambda: sample(server.page(), "num_requests_running") == 0, "the end of the request")
    return found


def compare(server: VllmServer, log: Path, *flags: str, prompts: Sequence[int] = PROMPTS) -> tuple[Pool, list[Held]]:
    """Everything that is compared for one running server; `flags` are what `plan` must be told beside `FLAGS`."""
    with Exporter(server.url, log, gpus="none", host="none") as exporter:
        measured = held(server, exporter, prompts)
        reading = exporter.next()
    answer = plan(server.model, [context for context, _, _ in measured], *flags)
    pool = pools(server, answer, reading.value("kv_calibration_ratio", engine="0"))
    expected = answer["blocks_held_at_context"]
    return pool, [Held(context, blocks, ours, expected[str(context)]) for context, blocks, ours in measured]


def pools(server: VllmServer, answer: Mapping[str, Any], calibration: float | None = None) -> Pool:
    """The pool that the server's page states beside that of a plan's `answer`."""
    labels = cache_labels(server.page())
    names = ("num_gpu_blocks", "block_size", "kv_cache_size_tokens")
    stated = {name: float(labels[name]) for name in names if labels.get(name, "None") != "None"}
    groups = ", ".join(f"{group['layers']} {group['kind']} of {group['block_size']}" for group in answer["groups"])
    return Pool(stated, {name: float(answer[name]) for name in stated}, calibration, groups)


def agrees(pool: Pool, found: Sequence[Held]) -> bool:
    """Whether page, exporter and plan are equal in everything."""
    same = all(one.server == one.exporter == one.plan for one in found)
    exact = pool.calibration is not None and math.isclose(pool.calibration, 1.0, rel_tol=1e-6)
    return same and exact and pool.server == pool.plan


def _settled(server: VllmServer, request: Sent) -> tuple[int, int]:
    """Context and blocks once neither page nor stream moves any more."""
    before: tuple[int, int] | None = None
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        now = (request.prompt_tokens + request.generated() - 1, used_blocks(server.page()))
        if now == before:
            return now
        before = now
        time.sleep(QUIET_SECONDS)
    raise TimeoutError("the suspended engine still moves")


def _until(condition: Any, what: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come")
        time.sleep(0.02)
