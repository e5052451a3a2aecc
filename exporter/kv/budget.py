"""GPU memory = weights + activations + memory outside PyTorch + CUDA graphs + KV cache.

vLLM gives the KV cache what is left of `gpu_memory_utilization × total` after one profiling step. Weights follow from
the dimensions; the other terms are estimates with a range, and each can be replaced by a figure from a start-up log.
Until 0.20 CUDA graphs were captured outside the budget; since 0.21 their estimate is taken off it.
"""

from dataclasses import dataclass
from typing import Literal

from exporter.kv.architecture import Architecture
from exporter.kv.dtypes import element_bytes
from exporter.kv.moe import experts_of
from exporter.kv.options import EngineOptions
from exporter.kv.placement import model_dtype
from exporter.kv.weights import Weights

GIB = 2**30
DEFAULT_UTILIZATION = 0.92
GRAPHS_INSIDE_SINCE = (0, 21)
_SAMPLER_BYTES_PER_LOGIT = 38
"""Logits in the model's dtype and in float32, their sort, its indices, probabilities and cumulative sums."""
Source = Literal["given", "computed", "estimated"]


@dataclass(frozen=True, slots=True)
class Term:
    """One share of GPU memory, in bytes, with the range it may lie in and where it comes from."""

    bytes: int
    low: int
    high: int
    source: Source
    formula: str

    @staticmethod
    def given(value: int) -> "Term":
        """A figure that someone read off a log."""
        return Term(value, value, value, "given", "as given")


@dataclass(frozen=True, slots=True)
class Overrides:
    """Terms known better than they can be estimated, in bytes."""

    weights: int | None = None
    activations: int | None = None
    non_torch: int | None = None
    cuda_graphs: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """How one GPU's memory divides. `kv` may be negative: that is what the plan is short by, before any KV at all."""

    total: int
    utilization: float
    weights: Term
    activations: Term
    non_torch: Term
    cuda_graphs: Term
    graphs_inside: bool

    @property
    def requested(self) -> int:
        """What vLLM may use: utilisation × total."""
        return int(self.total * self.utilization)

    @property
    def kv(self) -> int:
        """What is left for the KV cache, in bytes."""
        return self._kv(self.weights.bytes, self.activations.bytes, self.non_torch.bytes, self.cuda_graphs.bytes)

    @property
    def kv_range(self) -> tuple[int, int]:
        """The KV cache if every estimate is at its worst, and at its best."""
        worst = self._kv(self.weights.high, self.activations.high, self.non_torch.high, self.cuda_graphs.high)
        best = self._kv(self.weights.low, self.activations.low, self.non_torch.low, self.cuda_graphs.low)
        return worst, best

    def _kv(self, weights: int, activations: int, non_torch: int, graphs: int) -> int:
        return self.requested - weights - activations - non_torch - (graphs if self.graphs_inside else 0)

    @property
    def free(self) -> int:
        """What stays free on the GPU once all of it is in place; negative if the graphs do not fit beside it."""
        outside = 0 if self.graphs_inside else self.cuda_graphs.bytes
        return self.total - self.requested - outside


def estimate_budget(
    architecture: Architecture,
    options: EngineOptions,
    weights: Weights,
    *,
    total: int,
    utilization: float = DEFAULT_UTILIZATION,
    max_num_seqs: int,
    eager: bool = False,
    version: tuple[int, int] = (0, 32),
    overrides: Overrides | None = None,
) -> Budget:
    """Divide `total` bytes of one GPU. `version` is vLLM's, major and minor."""
    known = overrides or Overrides()
    inside = version >= GRAPHS_INSIDE_SINCE
    return Budget(
        total=total,
        utilization=utilization,
        weights=_weights(weights) if known.weights is None else Term.given(known.weights),
        activations=_activations(architecture, options, max_num_seqs)
        if known.activations is None
        else Term.given(known.activations),
        non_torch=_non_torch(options) if known.non_torch is None else Term.given(known.non_torch),
        cuda_graphs=_graphs(architecture, options, eager=eager)
        if known.cuda_graphs is None
        else Term.given(known.cuda_graphs),
        graphs_inside=inside,
    )


def default_limits(gpu: str, total: int) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) that `vllm serve` chooses for a GPU (0.32, `get_batch_defaults`)."""
    if total >= 160 * GIB:
        return 16384, 1024
    if total >= 70 * GIB and "a100" not in gpu.lower():
        return 8192, 1024
    return 2048, 256


def _weights(weights: Weights) -> Term:
    spread = 0.01 if weights.quantization is None else 0.06
    value = weights.bytes
    formula = (
        "parameters × bytes each" if weights.quantization is None else f"parameters stored as {weights.quantization}"
    )
    return Term(value, int(value * (1 - spread / 2)), int(value * (1 + spread)), "computed", formula)


def _activations(architecture: Architecture, options: EngineOptions, max_num_seqs: int) -> Term:
    """The larger of the two peaks of the profiling step: the widest layer, and the sampler on every sequence."""
    facts = architecture.facts
    width = element_bytes(model_dtype(architecture, options))
    tokens = options.max_num_batched_tokens
    experts = experts_of(facts)
    inner = int(facts.get("intermediate_size", "ffn_dim", "n_inner", default=4 * facts.hidden_size))
    if experts is not None:
        inner = max(
            experts.width * facts.integer("num_experts_per_tok", "moe_topk", "moe_k", default=1), experts.shared_width
        )
    layer = tokens * width * (3 * facts.hidden_size + 3 * inner // options.tensor_parallel_size)
    rows = min(max_num_seqs, tokens)
    sampler = rows * facts.integer("vocab_size", "padded_vocab_size") * _SAMPLER_BYTES_PER_LOGIT
    value = max(layer, sampler) + tokens * width * facts.hidden_size
    formula = "max(batched tokens × 3 (hidden + intermediate), sequences × vocabulary × 38 B) + residual stream"
    return Term(value, value // 3, int(value * 1.5), "estimated", formula)


def _non_torch(options: EngineOptions) -> Term:
    """The CUDA context's growth and, with several ranks, the communicators' buffers."""
    ranks = options.tensor_parallel_size * options.pipeline_parallel_size
    value = 0.13 if ranks == 1 else 0.5
    return Term(
        int(value * GIB),
        int(0.03 * GIB),
        int((0.4 if ranks == 1 else 1.2) * GIB),
        "estimated",
        "0.13 GiB, 0.5 with ranks",
    )


def _graphs(architecture: Architecture, options: EngineOptions, *, eager: bool) -> Term:
    if eager:
        return Term(0, 0, 0, "computed", "eager: none")
    layers = len(architecture.caches) / options.pipeline_parallel_size
    value = int((0.15 + 0.012 * layers) * GIB)
    return Term(value, value // 5, 4 * value, "estimated", "0.15 GiB + 12 MiB a layer")
