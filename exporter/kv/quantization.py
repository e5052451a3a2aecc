"""What `quantization_config` does to the weights. It never changes a byte of the KV cache by itself.

The KV cache is quantised only by `--kv-cache-dtype`, or by a checkpoint that states a `kv_cache_scheme`.
"""

from dataclasses import dataclass

from exporter.kv.facts import Facts

_FP8_METHODS = ("fp8", "fbgemm_fp8", "deepseek_v4_fp8", "modelopt", "ptpc_fp8")


@dataclass(frozen=True, slots=True)
class Quantization:
    """How matrices are stored: bits an element, group of elements that share a scale, bytes of scale and zero point."""

    name: str | None = None
    bits: float = 16
    group: int = 0
    scale_bytes: float = 0.0
    experts_only: bool = False
    """Whether the checkpoint leaves attention and other dense layers as they are."""
    expert_padding: int = 0
    """Expert widths are padded to a multiple of this on each rank."""

    def matrix_bytes(self, parameters: int, width: int) -> int:
        """Bytes of `parameters` elements of linear layers; `width` bytes each if not quantised."""
        if self.name is None:
            return parameters * width
        scales = parameters / self.group * self.scale_bytes if self.group else 0.0
        return round(parameters * self.bits / 8 + scales)


def quantization_config(facts: Facts) -> dict[str, object] | None:
    """The stated quantisation, wherever the file keeps it."""
    for part in (facts.outer, facts.text):
        for name in ("quantization_config", "compression_config"):
            value = part.get(name)
            if isinstance(value, dict):
                return value
    return None


def read_quantization(facts: Facts) -> Quantization:
    """How the weights are stored; unquantised if the file states nothing or something unknown."""
    config = quantization_config(facts)
    if config is None:
        return Quantization()
    method = str(config.get("quant_method", "")).lower().replace("_", "-")
    if method in ("awq", "awq-marlin", "gptq", "gptq-marlin", "auto-round", "intel/auto-round"):
        bits = _number(config, ("bits", "w_bit"), 4)
        group = _number(config, ("group_size", "q_group_size"), 128)
        return Quantization(method, bits, max(0, int(group)), scale_bytes=2 + bits / 8)
    if method in ("mxfp4", "gpt-oss-mxfp4"):
        return Quantization("mxfp4", 4, 32, scale_bytes=1, experts_only=True, expert_padding=256)
    if method in ("nvfp4", "modelopt-fp4"):
        return Quantization("nvfp4", 4, 16, scale_bytes=1)
    if method == "bitsandbytes":
        if config.get("load_in_8bit"):
            return Quantization("bitsandbytes int8", 8)
        return Quantization("bitsandbytes nf4", 4, 64, scale_bytes=1)
    if method == "compressed-tensors":
        return _compressed_tensors(config)
    if method.replace("-", "_") in _FP8_METHODS:
        block = config.get("weight_block_size")
        area = int(block[0]) * int(block[1]) if isinstance(block, list) and len(block) == 2 else 0
        return Quantization("fp8", 8, area, scale_bytes=4 if area else 0)
    return Quantization()


def kv_cache_dtype_hint(facts: Facts) -> str | None:
    """The KV cache dtype that the checkpoint asks for and vLLM follows under `auto`; `None` for none."""
    config = quantization_config(facts)
    if config is None:
        return None
    scheme = config.get("kv_cache_scheme")
    if isinstance(scheme, dict) and scheme.get("num_bits", 8) == 8:
        return "fp8"
    part = config.get("quantization")
    algorithm = part.get("kv_cache_quant_algo") if isinstance(part, dict) else None
    algorithm = algorithm or config.get("kv_cache_quant_algo")
    if isinstance(algorithm, str):
        return {"FP8": "fp8", "NVFP4": "nvfp4"}.get(algorithm.upper())
    return None


def _compressed_tensors(config: dict[str, object]) -> Quantization:
    groups = config.get("config_groups")
    first: object = next(iter(groups.values())) if isinstance(groups, dict) and groups else None
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        return Quantization()
    bits = int(weights.get("num_bits") or 8)
    group = int(weights.get("group_size") or 0)
    kind = "fp" if weights.get("type") == "float" else "int"
    return Quantization(f"compressed-tensors {kind}{bits}", bits, max(0, group), scale_bytes=2 if group > 0 else 0)


def _number(config: dict[str, object], names: tuple[str, ...], default: float) -> float:
    for name in names:
        value = config.get(name)
        if isinstance(value, int | float):
            return float(value)
    return default
