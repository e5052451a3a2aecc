"""The plan itself: a model on a budget, and everything that follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from exporter.errors import InputError
from exporter.kv.architecture import Architecture, read_architecture
from exporter.kv.budget import Budget, estimate_budget
from exporter.kv.layers import SPEC_NAMES
from exporter.kv.options import EngineOptions
from exporter.kv.pool import Pool
from exporter.kv.quantization import kv_cache_dtype_hint
from exporter.kv.sizing import held_blocks, size_architecture
from exporter.kv.weights import Weights, count_weights
from exporter.plan.arguments import Request

LONG_FACTOR = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """One model on one budget. `kv_bytes` is per rank; `budget` is `None` if the KV bytes were given."""

    request: Request
    options: EngineOptions
    architecture: Architecture
    weights: Weights
    pool: Pool
    kv_bytes: int
    budget: Budget | None
    warnings: tuple[str, ...]
    refusal: str | None = None
    """Why vLLM would not start whatever the memory; the figures are then what they would be if it did."""

    @property
    def fits(self) -> bool:
        """Whether vLLM would start: the weights, and one request of max_model_len."""
        return self.kv_bytes > 0 and self.pool.fits

    @property
    def short_by(self) -> int:
        """Bytes per rank that are missing for one request of max_model_len; 0 if it fits."""
        return max(0, self.pool.bytes_needed_for_one - self.kv_bytes) if not self.fits else 0

    @property
    def bytes_per_token(self) -> float:
        """Bytes per rank that one more token costs while no window is full yet."""
        slots = sum(1 / g.first.block_size for g in self.pool.groups if g.first.kind != "state")
        return self.pool.bytes_per_block * slots / self.options.decode_context_parallel_size

    def blocks_held(self, context: int) -> int:
        """Blocks one request holds at a context."""
        return held_blocks(self.pool, self.options, context)

    def requests_at(self, context: int) -> int:
        """Requests of that context that fit at once: usable blocks over the blocks one holds."""
        return self.pool.usable_blocks // max(1, self.blocks_held(context)) if self.kv_bytes > 0 else 0


def make_plan(config: Mapping[str, Any], request: Request) -> Plan:
    """Plan a parsed config.json. Raises `InputError` for input that vLLM would refuse."""
    if request.quantization and not ({"quantization_config", "compression_config"} & set(config)):
        config = {**config, "quantization_config": {"quant_method": request.quantization}}
    try:
        return _planned(read_architecture(config), request)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"config.json: its values do not describe a model ({type(error).__name__}: {error}); "
            "check it against the original"
        ) from error


def _planned(architecture: Architecture, request: Request) -> Plan:
    options, warnings, refusal = resolve(architecture, request)
    weights = count_weights(architecture, options)
    if request.cpu_offload_bytes:
        weights = replace(weights, bytes=max(0, weights.bytes - request.cpu_offload_bytes))
    budget = None
    kv_bytes = request.kv_bytes
    if kv_bytes is None and request.gpu_bytes is not None:
        budget = estimate_budget(
            architecture,
            options,
            weights,
            total=request.gpu_bytes,
            utilization=request.utilization,
            max_num_seqs=request.max_num_seqs,
            eager=request.eager,
            version=request.version,
            overrides=request.overrides,
        )
        kv_bytes = budget.kv
    pool = size_architecture(architecture, options, kv_bytes or 0)
    if options.num_gpu_blocks_override is not None:
        kv_bytes = pool.num_gpu_blocks * pool.bytes_per_block
    return Plan(request, options, architecture, weights, pool, kv_bytes or 0, budget, warnings, refusal)


def resolve(architecture: Architecture, request: Request) -> tuple[EngineOptions, tuple[str, ...], str | None]:
    """The flags with what the model decides, what to say of them, and why vLLM would refuse them."""
    warnings = []
    refusal = None
    own = architecture.facts.max_length
    length = request.max_model_len or own
    if length is None:
        raise InputError("config.json states no maximum length; pass --max-model-len")
    if own is not None and length > own:
        if length >= LONG_FACTOR * own and not request.allow_long:
            refusal = (
                f"--max-model-len {length}: the model was made for {own} tokens and vLLM refuses more; "
                f"pass at most {own}, or --allow-long-max-model-len if you override that check in vLLM too"
            )
        warnings.append(
            f"--max-model-len {length} is beyond the model's own {own}: vLLM starts only with "
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
        )
    options = replace(request.options, max_model_len=length)
    hint = kv_cache_dtype_hint(architecture.facts)
    if options.kv_cache_dtype == "auto" and hint is not None:
        options = replace(options, kv_cache_dtype=hint)
        warnings.append(f"the checkpoint states a KV cache scheme, so vLLM keeps the cache as {hint}")
    if options.draft_layers:
        warnings.append(
            f"the draft's {options.draft_layers} layers are taken to cache as the model's do; its weights do not count"
        )
    if architecture.estimated is not None:
        warnings.append(f"estimated: {architecture.estimated}")
    return options, tuple(warnings), refusal


def as_json(plan: Plan) -> dict[str, Any]:
    """The machine-readable answer. Bytes are per rank."""
    pool = plan.pool
    answer: dict[str, Any] = {
        "model": plan.architecture.name,
        "fits": plan.fits and plan.refusal is None,
        "refusal": plan.refusal,
        "short_by_bytes": plan.short_by,
        "max_model_len": pool.max_model_len,
        "kv_memory_bytes": plan.kv_bytes,
        "num_gpu_blocks": pool.num_gpu_blocks,
        "bytes_per_block": pool.bytes_per_block,
        "block_size": pool.block_size,
        "kv_cache_size_tokens": pool.kv_cache_size_tokens,
        "max_concurrency": pool.max_concurrency,
        "kv_bytes_per_token": _whole(plan.bytes_per_token),
        "blocks_per_request_at_max_model_len": list(pool.blocks_per_request),
        "groups": [
            {
                "kind": SPEC_NAMES[group.first.kind],
                "layers": len(group.layers),
                "block_size": group.first.block_size,
                "page_size_bytes": group.first.page_bytes,
                "sliding_window": group.first.window,
                "chunk": group.first.chunk,
            }
            for group in pool.groups
        ],
        "kv_layers": sum(len(group.layers) for group in pool.groups),
        "kv_cache_dtype": plan.options.kv_cache_dtype,
        "max_num_batched_tokens": plan.options.max_num_batched_tokens,
        "weight_params_per_rank": plan.weights.parameters,
        "weight_bytes_per_rank": plan.weights.bytes,
        "weight_quantization": plan.weights.quantization,
        "estimated": plan.architecture.estimated is not None,
        "warnings": list(plan.warnings),
    }
    contexts = plan.request.contexts
    if contexts:
        held = {str(context): plan.blocks_held(context) for context in contexts}
        answer["blocks_held_at_context"] = held if len(held) > 1 else next(iter(held.values()))
        answer["requests_at_context"] = {str(context): plan.requests_at(context) for context in contexts}
    if plan.budget is not None:
        answer["budget"] = _budget(plan.budget)
    return answer


def _budget(budget: Budget) -> dict[str, Any]:
    terms = {
        "weights": budget.weights,
        "activations": budget.activations,
        "non_torch": budget.non_torch,
        "cuda_graphs": budget.cuda_graphs,
    }
    low, high = budget.kv_range
    return {
        "gpu_memory_bytes": budget.total,
        "gpu_memory_utilization": budget.utilization,
        "graphs_inside_budget": budget.graphs_inside,
        "terms": {
            name: {
                "bytes": term.bytes,
                "low": term.low,
                "high": term.high,
                "source": term.source,
                "formula": term.formula,
            }
            for name, term in terms.items()
        },
        "kv_bytes": budget.kv,
        "kv_bytes_low": low,
        "kv_bytes_high": high,
        "free_bytes": budget.free,
    }


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else value
