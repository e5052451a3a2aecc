"""`plan --from-log`: what a start-up log says, and where it differs from the plan."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TextIO

from exporter.errors import InputError, shown
from exporter.forecast.startup import Start, start_faults, suspect
from exporter.kv.budget import GRAPHS_INSIDE_SINCE, Overrides
from exporter.plan.answer import Plan, make_plan
from exporter.plan.arguments import Request
from exporter.plan.startup_log import StartupLog, read_log
from exporter.plan.text import gib
from exporter.sources.model_config import find_model_config, read_config_file

_MAX_BYTES = 256 * 2**20


def explain_log(request: Request, out: TextIO) -> int:
    """Read the log, compare it with the plan if a model was given, print. 0: the engine started; 1: it did not."""
    log = _read(request)
    plan = _plan(log, request)
    failed = log.refused or (log.figure("available") or 0) < 0
    if request.as_json:
        out.write(json.dumps(_as_json(log, plan, failed=failed)) + "\n")
    else:
        out.write("\n".join([*_said(log), *_findings(log, plan)]) + "\n")
    return 1 if failed else 0


def _read(request: Request) -> StartupLog:
    path = request.from_log
    assert path is not None  # noqa: S101
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            log = read_log(stream.read(_MAX_BYTES).splitlines())
    except FileNotFoundError:
        raise InputError(f"--from-log {path}: no such file; pass what vLLM printed when it started") from None
    except OSError as error:
        raise InputError(f"--from-log {path}: cannot be read ({error.strerror})") from None
    if not log.figures or not log.figures.values:
        raise InputError(
            f"--from-log {path}: no line of it speaks of vLLM's memory; pass what vLLM printed when it started"
        )
    return log


def _plan(log: StartupLog, request: Request) -> Plan | None:
    """The plan under the log's own settings and, where it states them, its own figures."""
    config = _config(log, request)
    if config is None:
        return None
    options = request.options
    length = request.max_model_len or _whole(log.figure("length"))
    options = replace(
        options,
        tensor_parallel_size=_whole(log.figure("tp")) or options.tensor_parallel_size,
        pipeline_parallel_size=_whole(log.figure("pp")) or options.pipeline_parallel_size,
        decode_context_parallel_size=_whole(log.figure("dcp")) or options.decode_context_parallel_size,
        kv_cache_dtype=log.kv_cache_dtype if log.kv_cache_dtype not in (None, "auto") else options.kv_cache_dtype,
    )
    request = replace(
        request,
        options=options,
        max_model_len=length,
        kv_bytes=request.kv_bytes or log.bytes_of("available"),
        version=log.version or request.version,
        overrides=request.overrides if request.overrides != Overrides() else _known(log),
        allow_long=True,
    )
    return make_plan(config, request)


def _config(log: StartupLog, request: Request) -> Mapping[str, Any] | None:
    """The config asked for, or the one of the model that the log names, if it is on this disk."""
    if request.model_config is not None:
        return read_config_file(request.model_config)
    names = tuple(name for name in (request.model, log.model) if name)
    return find_model_config(names, environment=os.environ).config


def _known(log: StartupLog) -> Overrides:
    return Overrides(
        weights=log.bytes_of("weights"),
        activations=log.bytes_of("activations"),
        non_torch=log.bytes_of("non_torch"),
        cuda_graphs=log.bytes_of("graphs"),
    )


def _said(log: StartupLog) -> list[str]:
    lines = ["the log says"]
    if log.version is not None:
        lines.append(f"  vLLM {log.version[0]}.{log.version[1]}" + (f", model {shown(log.model)}" if log.model else ""))
    for name, label in (
        ("weights", "weights"),
        ("activations", "peak activations"),
        ("non_torch", "outside PyTorch"),
        ("graphs", "CUDA graphs"),
        ("graphs_estimate", "CUDA graphs, estimated"),
        ("available", "left for the KV cache"),
        ("needed", "needed for one request"),
    ):
        value = log.bytes_of(name)
        if value is not None:
            lines.append(f"  {label:<24}{gib(value):>14}")
    for name, label in (("tokens", "tokens"), ("concurrency", "maximum concurrency"), ("blocks", "blocks")):
        number = log.figure(name)
        if number is not None:
            lines.append(f"  {label:<24}{number:>14,.10g}")
    return lines


def _findings(log: StartupLog, plan: Plan | None) -> list[str]:
    lines = ["", "what it means"]
    lines += [f"  {finding}" for finding in _explanations(log, plan)]
    return lines


def _explanations(log: StartupLog, plan: Plan | None) -> list[str]:
    found = []
    available, needed = log.bytes_of("available"), log.bytes_of("needed")
    if available is not None and available < 0:
        found.append(
            f"the KV cache is short by {gib(-available)} before a single block: weights and activations do not fit"
        )
    if needed is not None and available is not None and needed > available:
        text = f"one request of max_model_len is short by {gib(needed - available)}"
        length = _whole(log.figure("estimated_length"))
        found.append(text + (f"; {length:,} tokens would fit" if length else ""))
    spread = log.available_per_rank
    if len(spread) > 1 and max(spread) - min(spread) > 0.01 * max(spread):
        found.append(f"ranks differ from {gib(min(spread))} to {gib(max(spread))}: the pool follows the smallest")
    estimate = log.bytes_of("graphs_estimate")
    total = log.bytes_of("total") or (plan.request.gpu_bytes if plan else None)
    if estimate is not None and total is not None and suspect(estimate, total):
        found.append(
            f"the estimate of {gib(estimate)} for CUDA graphs is suspect: it exceeds a quarter of the card; "
            "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 with a lower --gpu-memory-utilization works around it"
        )
    if total is not None:
        found += [f"the next start: {fault}" for fault in _next_start(log, total)]
    if log.version is not None:
        inside = log.version >= GRAPHS_INSIDE_SINCE
        found.append(
            "CUDA graphs are taken off the budget in this version (0.21 and later)"
            if inside
            else "CUDA graphs come on top of gpu_memory_utilization in this version (before 0.21)"
        )
    if log.preemption_warnings:
        found.append(f"{log.preemption_warnings} lines speak of preemption: the pool was full while requests ran")
    if plan is not None:
        found += _compared(log, plan)
    return found or ["nothing out of the ordinary"]


def _next_start(log: StartupLog, total: int) -> tuple[str, ...]:
    """What speaks against starting again as it started, on a card of `total` bytes; nothing where too little is logged.

    An estimate of the graphs is left out: what they took is logged once they are captured.
    """
    utilization, weights, available = log.figure("utilization"), log.bytes_of("weights"), log.bytes_of("available")
    if utilization is None or weights is None or available is None or available <= 0:
        return ()
    known = {name: log.bytes_of(name) or 0 for name in ("non_torch", "graphs")}
    activations = log.bytes_of("activations") or 0
    return start_faults(Start(total, utilization, weights, activations, kv=available, **known))


def _compared(log: StartupLog, plan: Plan) -> list[str]:
    found = []
    weights = log.bytes_of("weights")
    if weights:
        found.append(
            _difference("weights", weights, plan.weights.bytes, "quantisation, a vision tower or a draft model")
        )
    tokens = log.figure("tokens")
    if tokens:
        ours = plan.pool.kv_cache_size_tokens
        found.append(
            f"{tokens:,.0f} tokens logged, {ours:,} by plan from the same bytes ({tokens / max(1, ours) - 1:+.1%})"
            + _token_cause(tokens / max(1, ours), log, plan)
        )
    return found


def _difference(what: str, logged: int, ours: int, cause: str) -> str:
    ratio = logged / max(1, ours) - 1
    text = f"{what}: {gib(logged)} logged, {gib(ours)} by plan ({ratio:+.1%})"
    return text if abs(ratio) < 0.05 else f"{text}: {cause}"


def _token_cause(ratio: float, log: StartupLog, plan: Plan) -> str:
    if abs(ratio - 1) <= 0.02:
        return ""
    if len(plan.pool.groups) > 1 and (log.version or (0, 32)) < (0, 21):
        return ": before 0.21 the line divided the pool over the groups, so it understates hybrids"
    if ratio > 1.5 and abs(ratio - round(ratio)) < 0.05 * ratio:
        return f": {round(ratio)} times, as decode-context parallelism counts"
    return ": a draft model shares the pool, other flags were set, or this is another model's config"


def _as_json(log: StartupLog, plan: Plan | None, *, failed: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "started": not failed,
        "version": f"{log.version[0]}.{log.version[1]}" if log.version else None,
        "model": log.model,
        "figures": dict(log.figures.values) if log.figures else {},
        "available_per_rank": list(log.available_per_rank),
        "preemption_warnings": log.preemption_warnings,
        "explanations": _explanations(log, plan),
    }
    if plan is not None:
        answer["plan"] = {
            "num_gpu_blocks": plan.pool.num_gpu_blocks,
            "kv_cache_size_tokens": plan.pool.kv_cache_size_tokens,
            "weight_bytes_per_rank": plan.weights.bytes,
        }
    return answer


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
