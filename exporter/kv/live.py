"""The arithmetic of a running engine: what its page says of the pool, joined with what its config.json says.

The engine's own facts win; the arithmetic adds what the page does not tell: what one request holds, and in how many
groups. Where both speak of the capacity they are compared, and a difference names its likely cause.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from exporter.errors import InputError
from exporter.kv.architecture import Architecture, read_architecture
from exporter.kv.demand import RequestDemand
from exporter.kv.options import DEFAULT_BATCHED_TOKENS, EngineOptions
from exporter.kv.pool import Pool
from exporter.kv.sizing import request_demand, size_architecture
from exporter.kv.weights import count_weights
from exporter.reading import CacheConfig

TOLERANCE = (0.98, 1.02)
_BATCH_SIZES = (2048, 1024, 512, 4096, 8192, 16384, 32768)


@dataclass(frozen=True, slots=True)
class LiveArithmetic:
    """One engine's pool by arithmetic.

    `calibration_ratio` is the engine's capacity in tokens over ours, `None` if the engine does not state its own;
    `cause` says what is likely different when it lies outside 0.98–1.02. Bytes are per rank.
    """

    demand: RequestDemand
    usable_blocks: int | None
    capacity_tokens: int | None
    bytes_per_block: int
    bytes_per_token: float
    blocks_per_request: int
    calibration_ratio: float | None
    cause: str | None
    estimated: str | None
    weight_bytes: int | None = None
    """The weights of one rank, a vision or audio tower left out; `None` where they cannot be counted."""
    doubled_gain: float | None = None
    """Capacity in tokens with twice the tensor-parallel ranks over now; `None` where it cannot be worked out."""


def live_arithmetic(
    config: Mapping[str, Any],
    cache: CacheConfig,
    *,
    max_model_len: int | None = None,
    tensor_parallel_size: int = 1,
    max_num_batched_tokens: int | None = None,
    speculative_tokens: int = 0,
) -> LiveArithmetic:
    """The arithmetic of the engine whose page shows `cache`. Raises `InputError` if the config is not a served model.

    `max_model_len` is that of `/v1/models`; without it, it follows from the page or the model. Options the page does
    not show (batched tokens, async scheduling) are taken as those that reproduce the engine's own capacity, if any do.
    """
    try:
        return _live(config, cache, max_model_len, tensor_parallel_size, max_num_batched_tokens, speculative_tokens)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"config.json: its values do not describe a model ({type(error).__name__}: {error}); "
            "check it against the original"
        ) from error


def _live(
    config: Mapping[str, Any],
    cache: CacheConfig,
    max_model_len: int | None,
    ranks: int,
    batched: int | None,
    speculative_tokens: int,
) -> LiveArithmetic:
    architecture = read_architecture(config)
    length = max_model_len or _stated_length(cache) or architecture.facts.max_length or 8192
    options = _options(cache, length, ranks, batched, speculative_tokens)
    options, pool, ratio = _best_match(architecture, options, cache, fixed=batched is not None)
    known = cache.num_gpu_blocks is not None
    outside = ratio is not None and not TOLERANCE[0] <= ratio <= TOLERANCE[1]
    return LiveArithmetic(
        demand=request_demand(pool, options),
        usable_blocks=pool.usable_blocks if known else None,
        capacity_tokens=pool.kv_cache_size_tokens if known else None,
        bytes_per_block=pool.bytes_per_block,
        bytes_per_token=sum(pool.blocks_per_request) * pool.bytes_per_block / length,
        blocks_per_request=sum(pool.blocks_per_request),
        calibration_ratio=ratio,
        cause=_cause(architecture, options, cache, ratio) if outside and ratio is not None else None,
        estimated=architecture.estimated,
        weight_bytes=_weight_bytes(architecture, options),
        doubled_gain=_doubled_gain(architecture, options, pool) if known else None,
    )


def _doubled_gain(architecture: Architecture, options: EngineOptions, pool: Pool) -> float | None:
    """What twice the ranks would hold over what these hold: the weights each rank is rid of become blocks."""
    wider = replace(
        options, tensor_parallel_size=2 * options.tensor_parallel_size, num_gpu_blocks_override=None, block_size=None
    )
    now, then = _weight_bytes(architecture, options), _weight_bytes(architecture, wider)
    if now is None or then is None or not pool.kv_cache_size_tokens:
        return None
    try:
        larger = size_architecture(architecture, wider, pool.num_gpu_blocks * pool.bytes_per_block + now - then)
    except InputError:
        return None
    return larger.kv_cache_size_tokens / pool.kv_cache_size_tokens


def _weight_bytes(architecture: Architecture, options: EngineOptions) -> int | None:
    try:
        return count_weights(architecture, options).bytes
    except InputError:
        return None


def _options(
    cache: CacheConfig, length: int, ranks: int, batched: int | None, speculative_tokens: int
) -> EngineOptions:
    labels = cache.labels
    options = EngineOptions(
        max_model_len=length,
        kv_cache_dtype=cache.cache_dtype or "auto",
        block_size=cache.block_size,
        tensor_parallel_size=ranks,
        max_num_batched_tokens=batched or DEFAULT_BATCHED_TOKENS,
        enable_prefix_caching=cache.enable_prefix_caching is not False,
        speculative_tokens=speculative_tokens,
        num_gpu_blocks_override=cache.num_gpu_blocks,
    )
    return replace(
        options,
        mamba_cache_dtype=labels.get("mamba_cache_dtype") or options.mamba_cache_dtype,
        mamba_ssm_cache_dtype=labels.get("mamba_ssm_cache_dtype") or options.mamba_ssm_cache_dtype,
    )


def _stated_length(cache: CacheConfig) -> int | None:
    """`kv_cache_size_tokens = int(concurrency × max_model_len)`, read backwards."""
    if not cache.kv_cache_size_tokens or not cache.kv_cache_max_concurrency:
        return None
    return round(cache.kv_cache_size_tokens / cache.kv_cache_max_concurrency)


def _best_match(
    architecture: Architecture, options: EngineOptions, cache: CacheConfig, *, fixed: bool
) -> tuple[EngineOptions, Pool, float | None]:
    pool = size_architecture(architecture, options, 0)
    best = (options, pool, _ratio(cache, pool))
    if best[2] is None or abs(best[2] - 1) < 1e-6:
        return best
    for candidate in _candidates(options, fixed=fixed):
        pool = size_architecture(architecture, candidate, 0)
        ratio = _ratio(cache, pool)
        if ratio is not None and best[2] is not None and abs(ratio - 1) < abs(best[2] - 1):
            best = (candidate, pool, ratio)
    return best


def _candidates(options: EngineOptions, *, fixed: bool) -> Iterator[EngineOptions]:
    for batched in (options.max_num_batched_tokens,) if fixed else _BATCH_SIZES:
        for overlap in (False, True):
            yield replace(options, max_num_batched_tokens=batched, async_scheduling=overlap)


def _ratio(cache: CacheConfig, pool: Pool) -> float | None:
    if cache.num_gpu_blocks is None or not cache.kv_cache_size_tokens or not pool.kv_cache_size_tokens:
        return None
    return cache.kv_cache_size_tokens / pool.kv_cache_size_tokens


def _cause(architecture: Architecture, options: EngineOptions, cache: CacheConfig, ratio: float) -> str:
    """The likely reason that the engine's capacity differs from ours."""
    if ratio > 1 and abs(ratio - round(ratio)) < 0.02 * ratio and round(ratio) > 1:
        return f"the engine counts {round(ratio)} times our tokens: decode-context parallelism splits each sequence"
    for change, name in (
        (replace(options, disable_hybrid_kv_cache_manager=True), "the hybrid KV cache manager is off"),
        (replace(options, enable_prefix_caching=not options.enable_prefix_caching), "prefix caching is set otherwise"),
        *((replace(options, speculative_tokens=n), f"a draft of {n} tokens holds blocks too") for n in range(1, 9)),
    ):
        try:
            other = _ratio(cache, size_architecture(architecture, change, 0))
        except InputError:
            continue
        if other is not None and TOLERANCE[0] <= other <= TOLERANCE[1]:
            return name
    if ratio < 1:
        return (
            "the engine holds fewer tokens than the model alone: a draft model or adapters share the pool, "
            "or the config is another model's"
        )
    return "the engine holds more tokens than this config says: the config is another model's, or misread"
