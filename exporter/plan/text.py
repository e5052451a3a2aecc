"""The plan for people: a bar of the GPU, a table of context and concurrency, the verdict, the levers."""

from collections.abc import Mapping, Sequence
from typing import Any

from exporter.errors import shown
from exporter.plan.answer import Plan
from exporter.plan.levers import Lever, levers

_WIDTH = 60
_CONTEXTS = (1024, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 1048576)
_PARTS = (
    ("weights", "█", "34"),
    ("graphs", "▓", "35"),
    ("activations", "▒", "33"),
    ("KV cache", "▚", "32"),
    ("free", "░", "2"),
)


def render(plan: Plan, config: Mapping[str, Any], *, colour: bool) -> str:
    """The whole answer, ending in a newline."""
    lines = [_title(plan), ""]
    if plan.budget is not None:
        lines += [*_bar(plan, colour=colour), ""]
    lines += [*_pool(plan), "", *_table(plan), "", *_verdict(plan, colour=colour), ""]
    lines += _levers(levers(config, plan))
    lines += [f"note: {shown(warning)}" for warning in _notes(plan)]
    return "\n".join(lines) + "\n"


def gib(value: float) -> str:
    """Bytes as GiB to the hundredth."""
    return f"{value / 2**30:,.2f} GiB"


def _title(plan: Plan) -> str:
    options = plan.options
    parts = [shown(plan.architecture.name or "model"), f"max_model_len {options.max_model_len:,}"]
    parts.append(f"KV cache {options.kv_cache_dtype}")
    for name, size in (("TP", options.tensor_parallel_size), ("PP", options.pipeline_parallel_size)):
        if size > 1:
            parts.append(f"{name} {size}")
    return " · ".join(parts)


def _bar(plan: Plan, *, colour: bool) -> list[str]:
    budget = plan.budget
    assert budget is not None  # noqa: S101
    shares = {
        "weights": budget.weights.bytes,
        "graphs": budget.cuda_graphs.bytes,
        "activations": budget.activations.bytes + budget.non_torch.bytes,
        "KV cache": max(0, budget.kv),
    }
    shares["free"] = max(0, budget.total - sum(shares.values()))
    bar, legend = "", []
    for name, block, code in _PARTS:
        value = shares[name]
        cells = round(_WIDTH * value / max(budget.total, sum(shares.values())))
        bar += _paint(block * cells, code, colour=colour)
        legend.append(f"{_paint(block, code, colour=colour)} {name} {gib(value)}")
    low, high = budget.kv_range
    name = plan.request.gpu or "GPU"
    return [
        f"{name}: {gib(budget.total)} usable, {budget.utilization:g} of it for vLLM, each GPU",
        f"[{bar}]",
        "  ".join(legend),
        f"KV cache by estimate between {gib(max(0, low))} and {gib(max(0, high))}; "
        f"activations and graphs are estimates, a start-up log knows them (--from-log)",
    ]


def _pool(plan: Plan) -> list[str]:
    pool = plan.pool
    size = f"{gib(max(0, plan.kv_bytes))} of KV cache per GPU"
    lines = [
        f"{size} = {pool.num_gpu_blocks:,} blocks of {pool.bytes_per_block:,} bytes",
        f"= {pool.kv_cache_size_tokens:,} tokens; {plan.bytes_per_token:,.0f} bytes per token per GPU",
    ]
    if len(pool.groups) > 1:
        kinds: dict[str, int] = {}
        for group in pool.groups:
            kinds[group.first.kind] = kinds.get(group.first.kind, 0) + 1
        shown = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
        lines.append(f"in {len(pool.groups)} groups that share the blocks ({shown}): a request holds blocks in each")
    return lines


def _table(plan: Plan) -> list[str]:
    limit = plan.pool.max_model_len
    lengths = sorted({c for c in (*_CONTEXTS, *plan.request.contexts) if c <= limit} | {limit})
    rows = [("context", "blocks each", "KV each", "concurrency", "whole requests")]
    for length in lengths:
        held = plan.blocks_held(length)
        each = gib(held * plan.pool.bytes_per_block)
        ratio = f"{plan.pool.num_gpu_blocks / max(1, held):,.2f}"
        rows.append((f"{length:,}", f"{held:,}", each, ratio, f"{plan.requests_at(length):,}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.append(
        "concurrency is blocks over blocks each, as vLLM logs it; the null block is nobody's, so a whole request less"
    )
    lines.append("may run: that is the upper bound for --max-num-seqs at this context, beyond it vLLM preempts")
    over = [context for context in plan.request.contexts if context > limit]
    if over:
        lines.append(f"a context of {max(over):,} is beyond max_model_len {limit:,}: vLLM refuses it")
    return lines


def _verdict(plan: Plan, *, colour: bool) -> list[str]:
    need = plan.pool.bytes_needed_for_one
    if plan.fits:
        text = (
            f"fits: one request of {plan.pool.max_model_len:,} tokens needs {gib(need)}, {gib(plan.kv_bytes)} there are"
        )
        return [
            _paint(text, "32", colour=colour),
            f"maximum concurrency {plan.pool.max_concurrency:.2f} at max_model_len",
        ]
    text = f"does not fit, short by {gib(plan.short_by)} per GPU"
    reason = (
        f"the weights and the rest leave {gib(plan.kv_bytes)} for the KV cache"
        if plan.kv_bytes <= 0
        else f"one request of {plan.pool.max_model_len:,} tokens needs {gib(need)}, {gib(plan.kv_bytes)} there are"
    )
    return [_paint(text, "31", colour=colour) + f": {reason}"]


def _levers(found: Sequence[Lever]) -> list[str]:
    if not found:
        return ["no single flag makes it fit: more or larger GPUs, or a smaller model"]
    lines = ["levers, the strongest first"]
    for lever in found:
        gain = f"×{lever.gain:.2f}" if lever.gain is not None else "" if "offloading" in lever.flags else "fits"
        lines += [f"  {gain:>6}  {lever.flags}", f"          cost: {lever.cost}"]
    return lines


def _notes(plan: Plan) -> list[str]:
    notes = list(plan.warnings)
    if plan.weights.quantization is not None:
        notes.append(f"weights are stored as {plan.weights.quantization}; that never changes the bytes of the KV cache")
    if plan.architecture.has_states:
        notes.append(
            f"state-space layers are planned at {plan.options.mamba_ssm_cache_dtype} (--mamba-ssm-cache-dtype)"
        )
    return notes


def _paint(text: str, code: str, *, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and text else text
