"""What would hold more: each lever recomputed, ranked by gain, with the flags to paste and what it costs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from exporter.errors import InputError
from exporter.forecast.card_budget import larger_share
from exporter.plan.answer import Plan, make_plan
from exporter.plan.arguments import Request

_ENOUGH = 1.01


@dataclass(frozen=True, slots=True)
class Lever:
    """One change. `gain` is requests at the plan's context after it, over now; `None` where now is nothing."""

    flags: str
    gain: float | None
    fits: bool
    cost: str


def levers(config: Mapping[str, Any], plan: Plan) -> tuple[Lever, ...]:
    """Every lever that helps, the strongest first."""
    found: list[Lever] = []
    for flags, request, cost in _changes(plan):
        if flags.startswith("--tensor") and any(lever.flags.startswith("--tensor") for lever in found):
            continue
        try:
            changed = make_plan(config, request)
        except InputError:
            continue
        gain = _capacity(changed) / _capacity(plan) if _capacity(plan) > 0 else None
        if (gain is None and changed.fits) or (gain is not None and gain >= _ENOUGH):
            found.append(Lever(flags, gain, changed.fits, cost))
    found.sort(key=lambda lever: (lever.gain is None, lever.gain or 0.0), reverse=True)
    if plan.fits:
        found.append(_offloading(plan))
    return tuple(found)


def _offloading(plan: Plan) -> Lever:
    asked = plan.request.kv_offloading_bytes
    size = asked / 2**30 if asked else max(1, round(plan.kv_bytes / 2**30))
    cost = (
        "host memory, of which vLLM pins about twice the size; blocks come back at the speed of PCIe; "
        "it adds prefix hits, not running requests"
    )
    return Lever(f"--kv-offloading-size {size:g}", None, True, cost)


def _capacity(plan: Plan) -> float:
    """Concurrency that a whole engine gives, per GPU count kept apart: requests of max_model_len."""
    return plan.pool.max_concurrency if plan.kv_bytes > 0 else 0.0


def _changes(plan: Plan) -> Iterator[tuple[str, Request, str]]:
    request, options = plan.request, plan.options
    if options.kv_cache_dtype in ("auto", "bfloat16", "float16") and not plan.architecture.has_states:
        yield (
            "--kv-cache-dtype fp8",
            replace(request, options=replace(request.options, kv_cache_dtype="fp8")),
            "up to one or two points on reasoning tasks; check yours",
        )
        yield (
            "--kv-cache-dtype int4_per_token_head",
            replace(request, options=replace(request.options, kv_cache_dtype="int4_per_token_head")),
            "errors gather at attention sinks and grow past 32k tokens; not for long contexts",
        )
    elif options.kv_cache_dtype in ("auto", "bfloat16", "float16"):
        yield (
            "--kv-cache-dtype fp8",
            replace(request, options=replace(request.options, kv_cache_dtype="fp8")),
            "up to one or two points on reasoning tasks; the states of the other layers stay as they are",
        )
    if request.gpu_bytes is not None:
        for factor in (2, 4, 8):
            wider = replace(request.options, tensor_parallel_size=factor * options.tensor_parallel_size)
            yield (
                f"--tensor-parallel-size {wider.tensor_parallel_size}",
                replace(request, options=wider),
                f"{factor} times the GPUs, and an all-reduce in every layer",
            )
        higher = larger_share(request.utilization)
        if higher is not None:
            yield (
                f"--gpu-memory-utilization {higher:g}",
                replace(request, utilization=higher),
                "room for activations, graphs and neighbours; it cannot make room for CUDA graphs",
            )
        if plan.weights.quantization is None:
            yield (
                "--quantization fp8",
                replace(request, quantization="fp8"),
                "weights in 8 bits: mostly under a point; the KV cache keeps its dtype",
            )
        if not request.eager:
            yield ("--enforce-eager", replace(request, eager=True), "slower decoding: no CUDA graphs")
        fewer_seqs = max(1, request.max_num_seqs // 4)
        yield (
            f"--max-num-seqs {fewer_seqs}",
            replace(request, max_num_seqs=fewer_seqs),
            "an upper bound on requests that run at once",
        )
    half = options.max_model_len // 2
    if half >= 1024:
        yield (
            f"--max-model-len {half}",
            replace(request, max_model_len=half),
            f"requests beyond {half} tokens are refused",
        )
    fewer = options.max_num_batched_tokens // 2
    if fewer >= 512:
        yield (
            f"--max-num-batched-tokens {fewer}",
            replace(request, options=replace(request.options, max_num_batched_tokens=fewer)),
            "slower prefill, and a longer wait for the first token",
        )
