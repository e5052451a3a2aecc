"""What can be done about KV pressure: each lever with its flag, its gain in words and its cost."""

from collections.abc import Mapping

from exporter.web.status import Lever

COSTS: Mapping[str, str] = {
    "kv_cache_dtype": "a restart; check the answers' quality with the smaller cache",
    "gpu_memory_utilization": "a restart; less room for activations, watch the GPU's headroom",
    "tensor_parallel_size": "a restart and more GPUs; communication on every step",
    "pipeline_parallel_size": "a restart and more GPUs; more latency for each token",
    "max_num_seqs": "a restart; requests queue instead of being preempted",
    "max_num_batched_tokens": "a restart; the first token of long prompts comes later",
    "max_model_len": "a restart; longer requests are refused",
    "replicas": "another server; traffic must be spread over both",
}
"""By the lever's name up to its `=`."""

NO_FLAG = ("replicas",)


def levers(gains: Mapping[str, float]) -> tuple[Lever, ...]:
    """The levers that change something, the greatest gain first."""
    useful = [(name, gain) for name, gain in gains.items() if gain > 0 and abs(gain - 1) >= 0.01]
    useful.sort(key=lambda pair: (-max(pair[1], 1 / pair[1]), pair[0]))
    return tuple(Lever(name, gain, _effect(gain), _flag(name), COSTS.get(_base(name))) for name, gain in useful)


def _base(name: str) -> str:
    return name.partition("=")[0]


def _flag(name: str) -> str | None:
    base, _, value = name.partition("=")
    if base in NO_FLAG:
        return None
    return f"--{base.replace('_', '-')}{f' {value}' if value else ''}"


def _effect(gain: float) -> str:
    if gain > 1:
        return f"{gain:.1f} × the capacity" if gain >= 1.95 else f"{100 * (gain - 1):.0f} % more capacity"
    return f"{100 * (1 - gain):.0f} % less demand"
