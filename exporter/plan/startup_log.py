"""A vLLM start-up log, read for what it says of memory.

Understands the lines of V0 and V1 up to 0.32: the capacity on one line or two, one line per rank or one for all,
negative figures, refusals, preemption warnings. A figure that is not there is `None`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

# Every repetition is bounded: a line of nothing but digits would else take time by the square of its length.
_NUMBER = r"(-?[\d,]{1,24}(?:\.\d{1,24})?)"
_SIZE = _NUMBER + r"\s*(?:GiB|GB)"
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("weights", re.compile(r"(?:Model loading took|Loading model weights took|model weights take)\s+" + _SIZE)),
    ("weights", re.compile(r"weights memory:\s*" + _SIZE)),
    ("activations", re.compile(r"(?:torch peak memory increase:|PyTorch activation peak memory takes)\s*" + _SIZE)),
    ("non_torch", re.compile(r"(?:non-torch forward increase memory:|non_torch_memory takes)\s*" + _SIZE)),
    ("weights", re.compile(r"Actual usage is " + _SIZE + r" for weight")),
    ("activations", re.compile(_SIZE + r" for peak activation")),
    ("non_torch", re.compile(_SIZE + r" for non-torch")),
    ("graphs", re.compile(_SIZE + r" for CUDAGraph memory")),
    ("total", re.compile(r"Free memory on device \(-?[\d.,]+/" + _SIZE + r"\) on startup")),
    ("utilization", re.compile(r"Desired GPU memory utilization is \(" + _NUMBER)),
    ("graphs", re.compile(r"Graph capturing finished in .{0,200}? took " + _SIZE)),
    ("graphs_estimate", re.compile(r"Estimated CUDA graph memory:\s*" + _SIZE)),
    ("graphs_estimate", re.compile(r"CUDA graph pool memory:.{0,200}?\(actual\),\s*" + _SIZE + r"\s*\(estimated\)")),
    ("graphs", re.compile(r"CUDA graph pool memory:\s*" + _SIZE + r"\s*\(actual\)")),
    ("available", re.compile(r"Available KV cache memory:\s*" + _SIZE)),
    ("available", re.compile(r"(?:memory reserved for KV Cache is|the available KV cache memory \()\s*" + _SIZE)),
    ("needed", re.compile(r"\(" + _SIZE + r" KV cache is needed")),
    ("total", re.compile(r"total_gpu_memory \(" + _SIZE + r"\)")),
    ("utilization", re.compile(r"gpu_memory_utilization \(" + _NUMBER + r"\)")),
    ("utilization", re.compile(r"gpu[-_]memory[-_]utilization['\"]?\s*[=:]\s*" + _NUMBER)),
    ("tokens", re.compile(r"KV cache size:\s*" + _NUMBER + r"\s*tokens")),
    ("concurrency", re.compile(r"Maximum concurrency for [\d,]+ tokens per request:\s*" + _NUMBER + "x")),
    ("length", re.compile(r"Maximum concurrency for " + _NUMBER + r" tokens per request")),
    ("length", re.compile(r"max seq len\s*\(?" + _NUMBER)),
    ("length", re.compile(r"max_seq_len=" + _NUMBER)),
    ("estimated_length", re.compile(r"estimated maximum model length is " + _NUMBER)),
    ("blocks", re.compile(r"# (?:GPU|cuda) blocks:\s*" + _NUMBER)),
    ("block_size", re.compile(r"Setting attention block size to " + _NUMBER + " tokens")),
    ("padding_layers", re.compile(r"Add (\d+) padding layers")),
    ("tp", re.compile(r"tensor_parallel_size=(\d+)")),
    ("pp", re.compile(r"pipeline_parallel_size=(\d+)")),
    ("dcp", re.compile(r"decode_context_parallel_size=(\d+)")),
)
_VERSION = re.compile(r"(?:engine \(v|server version |vLLM version )v?(\d{1,4})\.(\d{1,4})")
_MODEL = re.compile(r"with config: .{0,2000}?model='([^']{1,512})'")
_KV_DTYPE = re.compile(r"kv_cache_dtype=([\w.]+)")
_PREEMPTED = re.compile(r"is preempted by|preemptions? (?:happened|occurred)|num_preemptions?=[1-9]", re.IGNORECASE)
_REFUSED = re.compile(r"No available memory for the cache blocks|is larger than the available KV cache memory")
_EAGER = re.compile(r"enforce_eager=True")
_TOO_LARGE = 1e12
_LINE_CHARACTERS = 16_384
"""vLLM's longest line, its whole configuration, has some five thousand."""
_GIB_FIELDS = {"weights", "activations", "non_torch", "graphs", "graphs_estimate", "available", "needed", "total"}


@dataclass(frozen=True, slots=True)
class StartupLog:
    """What a log says. Memory in bytes, per rank; where ranks differ, the one that decides (see `read_log`)."""

    version: tuple[int, int] | None = None
    model: str | None = None
    kv_cache_dtype: str | None = None
    eager: bool = False
    figures: "Figures | None" = None
    available_per_rank: tuple[int, ...] = ()
    preemption_warnings: int = 0
    refused: bool = False

    def figure(self, name: str) -> float | None:
        """One of the figures by name, `None` if the log does not have it."""
        return None if self.figures is None else self.figures.values.get(name)

    def bytes_of(self, name: str) -> int | None:
        """A figure that is memory, in bytes."""
        value = self.figure(name)
        return None if value is None else round(value)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures by name; memory in bytes."""

    values: dict[str, float]


def read_log(lines: Iterable[str]) -> StartupLog:
    """Read a log line by line.

    Every rank logs its own figures: of the memory left for KV the smallest counts, since the pool follows it; of
    everything that takes memory the largest. Other figures count as last said.
    """
    seen: dict[str, list[float]] = {}
    log = StartupLog()
    preempted = 0
    for whole_line in lines:
        line = whole_line[:_LINE_CHARACTERS]
        for name, pattern in _PATTERNS:
            for match in pattern.finditer(line):
                value = _figure(match.group(1))
                if value is not None:
                    seen.setdefault(name, []).append(value * 2**30 if name in _GIB_FIELDS else value)
        log = _facts(log, line)
        preempted += bool(_PREEMPTED.search(line))
    values = {name: _decisive(name, found) for name, found in seen.items()}
    return replace(
        log,
        figures=Figures(values),
        available_per_rank=tuple(round(value) for value in seen.get("available", ())),
        preemption_warnings=preempted,
    )


def _figure(text: str) -> float | None:
    """A figure as vLLM writes it; `None` for what is no number, or one that no machine has."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if abs(value) < _TOO_LARGE else None


def _facts(log: StartupLog, line: str) -> StartupLog:
    if (match := _VERSION.search(line)) and log.version is None:
        log = replace(log, version=(int(match.group(1)), int(match.group(2))))
    if (match := _MODEL.search(line)) and log.model is None:
        log = replace(log, model=match.group(1))
    if match := _KV_DTYPE.search(line):
        log = replace(log, kv_cache_dtype=match.group(1))
    if _EAGER.search(line):
        log = replace(log, eager=True)
    if _REFUSED.search(line):
        log = replace(log, refused=True)
    return log


def _decisive(name: str, found: list[float]) -> float:
    if name == "available":
        return min(found)
    if name in _GIB_FIELDS:
        return max(found)
    return found[-1]
