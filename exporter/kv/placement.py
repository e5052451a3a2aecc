"""The model on its ranks: tokens per block, bytes per block, pipeline stages.

The attention block of a hybrid model grows until its page is at least as large as a state, in steps that the
attention kernels accept; the state's page is padded to the same size (vLLM: `_align_hybrid_block_size`).
"""

from collections.abc import Sequence

from exporter.errors import InputError
from exporter.kv.architecture import Architecture, Attention, Cache, Latent
from exporter.kv.dtypes import attention_cell_bytes, latent_cell_bytes
from exporter.kv.layers import Kind, LayerCache
from exporter.kv.options import DEFAULT_BLOCK_SIZE, EngineOptions
from exporter.kv.states import StateShape

_KERNEL_BLOCK = 16
_MLA_HYBRID_BLOCK = 128


def place(architecture: Architecture, options: EngineOptions) -> tuple[tuple[LayerCache, ...], int]:
    """Every layer of the model as one rank holds it, and the block size that the engine reports."""
    heads, ranks = architecture.facts.heads, options.tensor_parallel_size
    if heads % ranks:
        raise InputError(
            f"{heads} attention heads do not divide over {ranks} tensor-parallel ranks; "
            f"choose a --tensor-parallel-size that divides {heads}"
        )
    dtype = model_dtype(architecture, options)
    kv_dtype = options.kv_cache_dtype
    block, state_page = _block_size(architecture, options, dtype, kv_dtype)
    layers = []
    for index, caches in enumerate(architecture.caches):
        for part, cache in enumerate(caches):
            if isinstance(cache, Attention) and cache.shared:
                continue
            name = f"{index}" if part == 0 else f"{index}.{part}"
            layers.append(_place_one(cache, name, options, dtype, kv_dtype, block, state_page))
    return tuple(layers), block


def model_dtype(architecture: Architecture, options: EngineOptions) -> str:
    """What the model computes in: `--dtype`, or its own; vLLM serves float32 checkpoints as float32 only on request."""
    if options.dtype != "auto":
        return options.dtype
    own = architecture.facts.dtype
    return "bfloat16" if own == "float32" else own


def stages(architecture: Architecture, options: EngineOptions) -> tuple[tuple[str, ...], ...]:
    """Layer names of each pipeline stage: equal shares, the remainder to the stages before the last."""
    shares = stage_shares(len(architecture.caches), options.pipeline_parallel_size)
    names: list[tuple[str, ...]] = []
    start = 0
    for share in shares:
        names.append(
            tuple(
                f"{index}" if part == 0 else f"{index}.{part}"
                for index in range(start, start + share)
                for part in range(len(architecture.caches[index]))
            )
        )
        start += share
    return tuple(names)


def stage_shares(count: int, size: int) -> list[int]:
    """Layers on each of `size` pipeline stages."""
    if size > count:
        raise InputError(f"{count} layers do not fill {size} pipeline stages; lower --pipeline-parallel-size")
    shares = [count // size] * size
    for extra in range(2, count % size + 2):
        shares[-extra] += 1
    return shares


def kv_heads_per_rank(kv_heads: int, tensor_parallel_size: int) -> int:
    """KV heads on one rank: split evenly, or one replicated head where ranks outnumber heads."""
    if kv_heads >= tensor_parallel_size:
        if kv_heads % tensor_parallel_size:
            raise InputError(
                f"{kv_heads} KV heads do not divide over {tensor_parallel_size} tensor-parallel ranks; "
                "choose a --tensor-parallel-size that divides them"
            )
        return kv_heads // tensor_parallel_size
    if tensor_parallel_size % kv_heads:
        raise InputError(
            f"{tensor_parallel_size} tensor-parallel ranks cannot share {kv_heads} KV heads evenly; "
            f"choose a --tensor-parallel-size that is a multiple of {kv_heads}"
        )
    return 1


def _place_one(
    cache: Cache, name: str, options: EngineOptions, dtype: str, kv_dtype: str, block: int, state_page: int | None
) -> LayerCache:
    if isinstance(cache, StateShape):
        size = cache.bytes_per_rank(options, dtype)
        return LayerCache(
            name=name,
            kind="state",
            block_size=block if options.enable_prefix_caching else options.max_model_len,
            page_bytes=max(size, state_page or 0),
            shape=(cache,),
            speculative_blocks=options.speculative_tokens,
            checkpoint_blocks=cache.checkpoint_blocks if options.enable_prefix_caching else 0,
            dcp_sharded=False,
        )
    if isinstance(cache, Latent):
        cell = cache.fixed_bytes if cache.fixed_bytes is not None else latent_cell_bytes(kv_dtype, dtype, cache.width)
        kind: Kind = "sliding_mla" if cache.window else "mla"
        return LayerCache(
            name, kind, block, cell * block, cell_bytes=cell, window=cache.window, shape=(cache.width, cell)
        )
    heads = kv_heads_per_rank(cache.kv_heads, options.tensor_parallel_size)
    cell = heads * attention_cell_bytes(kv_dtype, dtype, cache.head_dim, cache.head_dim_v)
    return LayerCache(
        name,
        "sliding" if cache.window else "chunked" if cache.chunk else "full",
        block,
        cell * block,
        cell_bytes=cell,
        window=cache.window,
        chunk=cache.chunk,
        shape=(heads, cache.head_dim, cache.head_dim_v),
    )


def _block_size(
    architecture: Architecture, options: EngineOptions, dtype: str, kv_dtype: str
) -> tuple[int, int | None]:
    """Tokens per attention block, and the padded page of a state; for hybrids the two are one decision."""
    block = options.block_size or DEFAULT_BLOCK_SIZE
    states = [cache for layer in architecture.caches for cache in layer if isinstance(cache, StateShape)]
    others = [cache for layer in architecture.caches for cache in layer if not isinstance(cache, StateShape)]
    if not states or not others:
        return block, None
    state = max(cache.bytes_per_rank(options, dtype) for cache in states)
    token = _token_bytes(others, options, dtype, kv_dtype)
    step = max(_KERNEL_BLOCK, block)
    if architecture.has_latents:
        step = max(step, _MLA_HYBRID_BLOCK)
    needed = step * -(-state // (step * token))
    needed = _KERNEL_BLOCK * -(-needed // _KERNEL_BLOCK)
    block = max(block, needed)
    return block, block * token


def _token_bytes(caches: Sequence[Cache], options: EngineOptions, dtype: str, kv_dtype: str) -> int:
    first = next(cache for cache in caches if isinstance(cache, Attention | Latent))
    if isinstance(first, Latent):
        return latent_cell_bytes(kv_dtype, dtype, first.width)
    heads = kv_heads_per_rank(first.kv_heads, options.tensor_parallel_size)
    return heads * attention_cell_bytes(kv_dtype, dtype, first.head_dim, first.head_dim_v)
