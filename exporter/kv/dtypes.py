"""Bytes per element, and what a `kv_cache_dtype` does to one attention head of one token."""

from exporter.errors import InputError

_BYTES = {
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
_ONE_BYTE = {"fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"}
_PACKED = {"fp8_ds_mla", "nvfp4_ds_mla"}
_PER_HEAD_SCALE_BYTES = 4
_MLA_PACKED_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
KV_CACHE_DTYPES = (
    "auto",
    "float32",
    "float16",
    "bfloat16",
    *sorted(_ONE_BYTE),
    *sorted(_PACKED),
    "int8_per_token_head",
    "fp8_per_token_head",
    "int4_per_token_head",
    "nvfp4",
    "nvfp4_4over6",
)


def element_bytes(dtype: str) -> int:
    """Bytes of one element of a model or state dtype; `torch.` prefixes are fine."""
    name = dtype.removeprefix("torch.")
    if name not in _BYTES:
        raise InputError(f"dtype {dtype!r} is not one of {', '.join(sorted(_BYTES))}; pass --dtype with one of them")
    return _BYTES[name]


def attention_cell_bytes(kv_cache_dtype: str, model_dtype: str, head_dim: int, head_dim_v: int) -> int:
    """Bytes of K and V of one KV head of one token.

    int8, fp8 and int4 "per token head" append one float32 scale to each of K and V; NVFP4 packs two values a byte
    and adds one fp8 scale per 16 (vLLM's attention backends, `customize_spec`).
    """
    if kv_cache_dtype == "auto":
        return (head_dim + head_dim_v) * element_bytes(model_dtype)
    if kv_cache_dtype in _ONE_BYTE or kv_cache_dtype in _PACKED:
        return head_dim + head_dim_v
    if kv_cache_dtype in ("int8_per_token_head", "fp8_per_token_head"):
        return head_dim + head_dim_v + 2 * _PER_HEAD_SCALE_BYTES
    if kv_cache_dtype == "int4_per_token_head":
        return head_dim // 2 + head_dim_v // 2 + 2 * _PER_HEAD_SCALE_BYTES
    if kv_cache_dtype.startswith("nvfp4"):
        return sum(dim // 2 + dim // 16 for dim in (head_dim, head_dim_v))
    return (head_dim + head_dim_v) * _checked(kv_cache_dtype)


def latent_cell_bytes(kv_cache_dtype: str, model_dtype: str, width: int) -> int:
    """Bytes of the one latent vector that MLA keeps per token; DS-MLA layouts are packed and have a fixed size."""
    if kv_cache_dtype in _MLA_PACKED_BYTES:
        return _MLA_PACKED_BYTES[kv_cache_dtype]
    if kv_cache_dtype == "auto":
        return width * element_bytes(model_dtype)
    if kv_cache_dtype in _ONE_BYTE or "per_token_head" in kv_cache_dtype or kv_cache_dtype.startswith("nvfp4"):
        return width
    return width * _checked(kv_cache_dtype)


def _checked(kv_cache_dtype: str) -> int:
    if kv_cache_dtype not in _BYTES:
        raise InputError(f"kv_cache_dtype {kv_cache_dtype!r} is not one of {', '.join(KV_CACHE_DTYPES)}")
    return _BYTES[kv_cache_dtype]
