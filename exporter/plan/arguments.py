"""The flags of `plan`: vLLM's own names for vLLM's flags, so that a command line can be pasted."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.errors import UsageError
from exporter.kv.budget import DEFAULT_UTILIZATION, Overrides, default_limits
from exporter.kv.dtypes import KV_CACHE_DTYPES
from exporter.kv.options import DEFAULT_BATCHED_TOKENS, EngineOptions
from exporter.plan.gpus import gpu_bytes

_SUFFIXES = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: the model's source, vLLM's flags, and the memory there is.

    `max_model_len` is `None` until the model is read, if the flag was not given.
    """

    model_config: Path | None
    model: str | None
    from_log: Path | None
    max_model_len: int | None
    options: EngineOptions
    kv_bytes: int | None
    gpu: str | None
    gpu_bytes: int | None
    utilization: float
    max_num_seqs: int
    eager: bool
    version: tuple[int, int]
    overrides: Overrides
    contexts: tuple[int, ...]
    kv_offloading_bytes: int
    allow_long: bool
    as_json: bool
    quantization: str | None = None
    """Quantisation at load time, for a checkpoint that states none."""
    cpu_offload_bytes: int = 0
    """Weights that stay in host memory."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> "NoReturn":  # type: ignore[name-defined]  # noqa: F821
        raise UsageError(f"plan: {message}; see vllm-headroom plan --help")


def build_parser() -> argparse.ArgumentParser:
    """The parser alone, for help and shell completion."""
    parser = _Parser(
        prog="vllm-headroom plan",
        description="What a model, a GPU and vLLM's flags come to: blocks, tokens, what fits, what would help.",
        epilog="Sizes take bytes or a suffix: 40Gi, 24G. Exit code 0: it fits; 1: it does not; 2: wrong use.",
    )
    source = parser.add_argument_group("the model")
    source.add_argument(
        "--model-config", type=Path, metavar="PATH", help="a config.json, or the directory that holds one"
    )
    source.add_argument("--model", metavar="ID", help="a model id, looked for in the Hugging Face cache on this disk")
    source.add_argument("--from-log", type=Path, metavar="FILE", help="a vLLM start-up log to read and explain")
    memory = parser.add_argument_group("the memory (per GPU)")
    memory.add_argument("--kv-memory-bytes", "--kv-cache-memory-bytes", type=_size, metavar="SIZE")
    memory.add_argument("--gpu", metavar="NAME", help="an NVIDIA part by name: H100, L40S, RTX-5090, …")
    memory.add_argument("--gpu-memory-bytes", type=_size, metavar="SIZE")
    memory.add_argument("--gpu-memory-utilization", type=_ratio, default=DEFAULT_UTILIZATION, metavar="RATIO")
    memory.add_argument("--kv-offloading-size", type=float, default=0.0, metavar="GIB", help="host memory for KV, GiB")
    memory.add_argument("--num-gpu-blocks-override", type=_positive, metavar="N")
    engine = parser.add_argument_group("vLLM's flags")
    engine.add_argument("--max-model-len", type=_positive, metavar="N")
    engine.add_argument("--dtype", default="auto", choices=["auto", "half", "float16", "bfloat16", "float", "float32"])
    engine.add_argument(
        "--quantization", "-q", metavar="METHOD", help="for checkpoints that are not quantised themselves"
    )
    engine.add_argument("--cpu-offload-gb", type=float, default=0.0, metavar="GIB", help="weights kept in host memory")
    engine.add_argument("--kv-cache-dtype", default="auto", choices=KV_CACHE_DTYPES, metavar="DTYPE")
    engine.add_argument("--kv-cache-dtype-skip-layers", nargs="+", default=[], metavar="LAYER")
    engine.add_argument("--block-size", type=_positive, metavar="N")
    engine.add_argument("--tensor-parallel-size", "-tp", type=_positive, default=1, metavar="N")
    engine.add_argument("--pipeline-parallel-size", "-pp", type=_positive, default=1, metavar="N")
    engine.add_argument("--decode-context-parallel-size", "-dcp", type=_positive, default=1, metavar="N")
    engine.add_argument("--enable-expert-parallel", action="store_true")
    engine.add_argument("--max-num-batched-tokens", type=_positive, metavar="N")
    engine.add_argument("--max-num-seqs", type=_positive, metavar="N")
    engine.add_argument("--async-scheduling", action=argparse.BooleanOptionalAction, default=False)
    engine.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    engine.add_argument("--disable-hybrid-kv-cache-manager", action=argparse.BooleanOptionalAction, default=False)
    dtypes = ["auto", "float32", "float16", "bfloat16"]
    engine.add_argument("--mamba-cache-dtype", default="auto", choices=dtypes)
    engine.add_argument("--mamba-ssm-cache-dtype", default="float32", choices=dtypes)
    engine.add_argument("--speculative-method", choices=["eagle", "eagle3", "mtp", "ngram", "draft_model"])
    engine.add_argument("--num-speculative-tokens", type=_count, default=0, metavar="N")
    engine.add_argument("--speculative-config", type=_speculation, metavar="JSON", help="vLLM's own, as JSON")
    engine.add_argument("--draft-layers", type=_count, metavar="N", help="attention layers of an EAGLE or MTP draft")
    engine.add_argument("--enforce-eager", action="store_true")
    engine.add_argument("--vllm-version", type=_version, default=(0, 32), metavar="X.Y")
    known = parser.add_argument_group("figures from a log, in place of estimates (per GPU)")
    for name in ("weight", "activation", "non-torch", "cuda-graph"):
        known.add_argument(f"--{name}-bytes", type=_size, metavar="SIZE")
    output = parser.add_argument_group("the answer")
    output.add_argument(
        "--context",
        type=_contexts,
        action="append",
        default=[],
        metavar="N",
        help="a request's length, or several: 1k,8k",
    )
    output.add_argument("--allow-long-max-model-len", action="store_true")
    output.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser


def parse_arguments(argv: Sequence[str]) -> Request:
    """The flags as a value. Raises `UsageError` with one line."""
    flags = build_parser().parse_args(list(argv))
    if flags.from_log is None and (flags.model_config is None) == (flags.model is None):
        raise UsageError("plan: pass either --model-config PATH or --model ID; see vllm-headroom plan --help")
    name, total = gpu_bytes(flags.gpu) if flags.gpu else (None, None)
    total = flags.gpu_memory_bytes or total
    if (
        flags.from_log is None
        and total is None
        and flags.kv_memory_bytes is None
        and flags.num_gpu_blocks_override is None
    ):
        raise UsageError("plan: say how much memory there is: --kv-memory-bytes, --gpu NAME or --gpu-memory-bytes")
    batched, seqs = (DEFAULT_BATCHED_TOKENS, 256) if total is None else default_limits(name or "", total)
    if flags.speculative_config is not None:
        flags.speculative_method, flags.num_speculative_tokens = flags.speculative_config
    draft = flags.draft_layers
    if draft is None:
        draft = 1 if flags.speculative_method in ("eagle", "eagle3", "mtp") else 0
    if flags.speculative_method and not flags.num_speculative_tokens:
        raise UsageError("plan: --speculative-method needs --num-speculative-tokens, as in vLLM's speculative config")
    options = EngineOptions(
        max_model_len=flags.max_model_len or 1,
        dtype={"half": "float16", "float": "float32"}.get(flags.dtype, flags.dtype),
        kv_cache_dtype=flags.kv_cache_dtype,
        block_size=flags.block_size,
        tensor_parallel_size=flags.tensor_parallel_size,
        pipeline_parallel_size=flags.pipeline_parallel_size,
        decode_context_parallel_size=flags.decode_context_parallel_size,
        enable_expert_parallel=flags.enable_expert_parallel,
        max_num_batched_tokens=flags.max_num_batched_tokens or batched,
        async_scheduling=flags.async_scheduling,
        enable_prefix_caching=flags.enable_prefix_caching,
        disable_hybrid_kv_cache_manager=flags.disable_hybrid_kv_cache_manager,
        mamba_cache_dtype=flags.mamba_cache_dtype,
        mamba_ssm_cache_dtype=flags.mamba_ssm_cache_dtype,
        speculative_tokens=flags.num_speculative_tokens,
        speculative_method=flags.speculative_method,
        draft_layers=draft,
        kv_cache_dtype_skip_layers=tuple(flags.kv_cache_dtype_skip_layers),
        num_gpu_blocks_override=flags.num_gpu_blocks_override,
    )
    return Request(
        model_config=flags.model_config,
        model=flags.model,
        from_log=flags.from_log,
        max_model_len=flags.max_model_len,
        options=options,
        kv_bytes=flags.kv_memory_bytes,
        gpu=name,
        gpu_bytes=total,
        utilization=flags.gpu_memory_utilization,
        max_num_seqs=flags.max_num_seqs or seqs,
        eager=flags.enforce_eager,
        version=flags.vllm_version,
        overrides=Overrides(flags.weight_bytes, flags.activation_bytes, flags.non_torch_bytes, flags.cuda_graph_bytes),
        contexts=tuple(context for several in flags.context for context in several),
        kv_offloading_bytes=int(flags.kv_offloading_size * 2**30),
        allow_long=flags.allow_long_max_model_len,
        as_json=flags.json,
        quantization=flags.quantization,
        cpu_offload_bytes=int(flags.cpu_offload_gb * 2**30),
    )


def _speculation(text: str) -> tuple[str, int]:
    try:
        stated = json.loads(text)
        method, tokens = str(stated.get("method") or "draft_model"), int(stated["num_speculative_tokens"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise argparse.ArgumentTypeError(
            'pass vLLM\'s JSON, such as {"method": "mtp", "num_speculative_tokens": 1}'
        ) from None
    return ("mtp" if method.endswith("mtp") else method), tokens


def _size(text: str) -> int:
    number = text.strip().upper().removesuffix("B")
    factor = 1
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if number.endswith(suffix):
            number, factor = number[: -len(suffix)], _SUFFIXES[suffix]
            break
    try:
        value = int(number) * factor if number.isdigit() else int(float(number) * factor)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 17179869184, 16Gi or 24G") from None
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not more than nothing")
    return value


def _contexts(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]


def _positive(text: str) -> int:
    value = _count(text)
    if value == 0:
        raise argparse.ArgumentTypeError("0 is not allowed; pass a whole number of at least 1")
    return value


def _count(text: str) -> int:
    short = text.strip().lower()
    factor = 1024 if short.endswith("k") else 1
    try:
        value = int(short.removesuffix("k")) * factor
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return value


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a ratio above 0 and at most 1")
    return value


def _version(text: str) -> tuple[int, int]:
    parts = text.lstrip("v").split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a version such as 0.32")
    return int(parts[0]), int(parts[1])
