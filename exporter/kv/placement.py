"""The model on its ranks: tokens per block, bytes per block, pipeline stages.

The attention block of a hybrid model grows until its page is at least as large as a state, in steps that the
attention kernels accept; the state's page is padded to the same size (vLLM: `_align_hybrid_block_size`).
"""

from collections.abc import Sequence
from dataclasses import replace

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
    _check_ranks(architecture, options)
    dtype = model_dtype(architecture, options)
    block, state_page = _block_size(architecture, options, dtype, options.kv_cache_dtype)
    layers = []
    for index, caches in enumerate((*architecture.caches, *_drafts(architecture, options))):
        for part, cache in enumerate(caches):
            if isinstance(cache, Attention) and cache.shared:
                continue
            kv_dtype = "auto" if _skipped(cache, index, options) else options.kv_cache_dtype
            layers.append(_place_one(cache, _name(index, part), options, dtype, kv_dtype, block, state_page))
    if options.decode_context_parallel_size > 1 and any(layer.kind in ("sliding", "chunked") for layer in layers):
        raise InputError("decode-context parallelism does not support sliding windows; vLLM refuses this model with it")
    return tuple(layers), block


def _check_ranks(architecture: Architecture, options: EngineOptions) -> None:
    heads, ranks = architecture.facts.heads, options.tensor_parallel_size
    if heads % ranks:
        raise InputError(
            f"{heads} attention heads do not divide over {ranks} tensor-parallel ranks; "
            f"choose a --tensor-parallel-size that divides {heads}"
        )
    if ranks % options.decode_context_parallel_size:
        raise InputError(
            f"--decode-context-parallel-size {options.decode_context_parallel_size} does not divide "
            f"--tensor-parallel-size {ranks}, whose ranks it uses"
        )


def _drafts(architecture: Architecture, options: EngineOptions) -> tuple[tuple[Cache, ...], ...]:
    """The layers of an EAGLE or MTP draft: the target's attention, looking back at everything."""
    if not options.draft_layers:
        return ()
    for caches in reversed(architecture.caches):
        kept = tuple(cache for cache in caches if not isinstance(cache, StateShape))
        if kept:
            return (tuple(replace(cache, window=None) for cache in kept),) * options.draft_layers
    raise InputError("a draft needs attention layers, which this model does not have; vLLM has no draft for it")


def _skipped(cache: Cache, index: int, options: EngineOptions) -> bool:
    """Whether `--kv-cache-dtype-skip-layers` names this layer, by its index or as a sliding window."""
    names = options.kv_cache_dtype_skip_layers
    return str(index) in names or ("sliding_window" in names and isinstance(cache, Attention) and bool(cache.window))


def _name(index: int, part: int) -> str:
    return f"{index}" if part == 0 else f"{index}.{part}"


def model_dtype(architecture: Architecture, options: EngineOptions) -> str:
    """What the model computes in: `--dtype`, or its own; vLLM serves float32 checkpoints as float32 only on request."""
    if options.dtype != "auto":
        return options.dtype
    own = architecture.facts.dtype
    return "bfloat16" if own == "float32" else own


def stages(architecture: Architecture, options: EngineOptions) -> tuple[tuple[str, ...], ...]:
    """Layer names of each pipeline stage: equal shares, the remainder to the stages before the last."""
    shares = stage_shares(len(architecture.caches), options.pipeline_parallel_size)
    caches = (*architecture.caches, *_drafts(architecture, options))
    shares[-1] += len(caches) - len(architecture.caches)
    names: list[tuple[str, ...]] = []
    start = 0
    for share in shares:
        names.append(
            tuple(_name(index, part) for index in range(start, start + share) for part in range(len(caches[index])))
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
        if cache.sparse and kv_dtype.startswith("fp8"):
            cell = latent_cell_bytes("fp8_ds_mla", dtype, cache.width)
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
