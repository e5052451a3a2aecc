"""Weights of one rank: parameters and bytes, from the dimensions of the model.

Counted as vLLM builds the modules: column- and row-parallel matrices are split, KV projections replicated where ranks
outnumber KV heads, norms and routers whole on every rank, the vocabulary padded to a multiple of 64.
"""

from dataclasses import dataclass

from exporter.kv.architecture import Architecture, Attention, Cache, Latent
from exporter.kv.dtypes import element_bytes
from exporter.kv.facts import Facts
from exporter.kv.moe import Experts, experts_of, sparse_layers
from exporter.kv.options import EngineOptions
from exporter.kv.placement import kv_heads_per_rank, model_dtype
from exporter.kv.quantization import Quantization, read_quantization
from exporter.kv.states import StateShape
from exporter.kv.traits import Traits, traits_of

_VOCAB_PADDING = 64


@dataclass(frozen=True, slots=True)
class Tally:
    """Parameters of one kind of module: in quantisable matrices, in the model's dtype, and always in float32."""

    matrices: int = 0
    plain: int = 0
    float32: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.matrices + other.matrices, self.plain + other.plain, self.float32 + other.float32)

    def times(self, count: int) -> "Tally":
        """`count` of these."""
        return Tally(self.matrices * count, self.plain * count, self.float32 * count)

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.matrices + self.plain + self.float32


@dataclass(frozen=True, slots=True)
class Weights:
    """What the weights of one rank take; `quantization` names how they are stored, if not in the model's dtype."""

    parameters: int
    bytes: int
    quantization: str | None = None


def count_weights(architecture: Architecture, options: EngineOptions) -> Weights:
    """Weights of the fullest rank: with pipeline stages, the stage with the most."""
    counter = _Counter(architecture, options)
    count = len(architecture.caches)
    size = options.pipeline_parallel_size
    shares = [count // size] * size
    for extra in range(2, count % size + 2):
        shares[-extra] += 1
    best, start = Tally(), 0
    for stage, share in enumerate(shares):
        tally = counter.stage(range(start, start + share), first=stage == 0, last=stage == size - 1)
        best = max(best, tally, key=lambda t: t.parameters)
        start += share
    width = element_bytes(model_dtype(architecture, options))
    quantization = read_quantization(architecture.facts)
    total = quantization.matrix_bytes(best.matrices, width) + best.plain * width + best.float32 * 4
    return Weights(best.parameters, total, quantization.name)


class _Counter:
    """Counts one model's modules on one tensor-parallel rank."""

    def __init__(self, architecture: Architecture, options: EngineOptions) -> None:
        self.architecture = architecture
        self.facts: Facts = architecture.facts
        self.options = options
        self.tp = options.tensor_parallel_size
        self.hidden = self.facts.hidden_size
        self.traits: Traits = traits_of(self.facts)
        self.experts: Experts | None = experts_of(self.facts)
        self.sparse = sparse_layers(self.facts, len(architecture.caches)) if self.experts else []

    def stage(self, layers: range, *, first: bool, last: bool) -> Tally:
        """Everything of one pipeline stage: its layers, and the embedding or the head at either end."""
        total = Tally()
        for index in layers:
            total += self.layer(index)
        vocab = self._vocab_rows() * self.hidden
        if first:
            total += Tally(plain=vocab + self.traits.positions * self.hidden)
        if last:
            total += Tally(plain=self.hidden * self.traits.norm_width)
            if not (self.traits.tied and first):
                total += Tally(plain=vocab)
            if self.traits.head_bias:
                total += Tally(plain=self._vocab_rows())
        return total

    def _vocab_rows(self) -> int:
        vocab = self.facts.integer("vocab_size", "padded_vocab_size")
        padded = -(-vocab // _VOCAB_PADDING) * _VOCAB_PADDING
        return padded // self.tp

    def layer(self, index: int) -> Tally:
        """One layer: what mixes tokens, what transforms each, and the norms around them."""
        total = Tally(plain=self.traits.norms * self.hidden * self.traits.norm_width)
        for cache in self.architecture.caches[index]:
            total += self._mixer(cache)
        if self.experts is not None and self.sparse[index]:
            return total + self._experts(self.experts)
        return total + self._dense()

    def _mixer(self, cache: Cache) -> Tally:
        if isinstance(cache, Attention):
            return self._attention(cache)
        if isinstance(cache, Latent):
            return self._latent(cache)
        return self._state(cache)

    def _attention(self, cache: Attention) -> Tally:
        heads = self.facts.heads // self.tp
        kv_heads = kv_heads_per_rank(cache.kv_heads, self.tp)
        q, k, v = heads * cache.head_dim, kv_heads * cache.head_dim, kv_heads * cache.head_dim_v
        plain = 0
        if self.traits.qkv_bias:
            plain += q + k + v
        if self.traits.out_bias:
            plain += self.hidden
        if self.traits.qk_norm == "head":
            plain += 2 * cache.head_dim
        elif self.traits.qk_norm == "width":
            plain += q + k
        gate = 2 if self.facts.get("attn_output_gate", default=self.facts.model_type == "qwen3_next") else 1
        return Tally(self.hidden * (gate * q + k + v) + heads * cache.head_dim_v * self.hidden, plain)

    def _latent(self, cache: Latent) -> Tally:
        if cache.fixed_bytes is not None:
            return Tally()
        facts = self.facts
        heads = facts.heads // self.tp
        nope, rope = facts.integer("qk_nope_head_dim"), facts.integer("qk_rope_head_dim")
        value, rank = facts.integer("v_head_dim"), facts.integer("kv_lora_rank")
        q_rank = facts.get("q_lora_rank")
        total = Tally(self.hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * self.hidden, rank)
        if q_rank:
            return total + Tally(self.hidden * q_rank + q_rank * heads * (nope + rope), q_rank)
        return total + Tally(self.hidden * heads * (nope + rope))

    def _state(self, cache: StateShape) -> Tally:
        tp, hidden = self.tp, self.hidden
        if cache.kind == "mamba1":
            inner = cache.conv_dim // tp
            rank = self.facts.integer("mamba_dt_rank", "time_step_rank", default=-(-hidden // 16))
            matrices = hidden * 2 * inner + inner * (rank + 2 * cache.state_dim) + rank * inner + inner * hidden
            norms = rank + 2 * cache.state_dim if self.facts.model_type == "jamba" else 0
            return Tally(matrices, inner * (cache.conv_kernel + 2) + norms, inner * (cache.state_dim + 1))
        if cache.kind == "mamba2":
            groups = cache.groups if cache.groups % tp == 0 else tp
            inner, states = cache.conv_dim // tp, 2 * groups * cache.state_dim // tp
            heads = cache.heads // tp
            matrices = hidden * (2 * inner + states + heads) + inner * hidden
            return Tally(matrices, (inner + states) * (cache.conv_kernel + 1) + inner, 3 * heads)
        if cache.kind == "gated_delta":
            key = (cache.conv_dim - cache.heads * cache.head_dim) // tp
            value, heads = cache.heads * cache.head_dim // tp, cache.heads // tp
            matrices = hidden * (key + 2 * value + 2 * heads) + value * hidden
            return Tally(matrices, (key + value) * cache.conv_kernel + heads + cache.head_dim, heads)
        return Tally()

    def _dense(self) -> Tally:
        inner = self.facts.get("intermediate_size_mlp") or self.facts.get(
            "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", default=4 * self.hidden
        )
        inner = int(inner) // self.tp
        bias = (inner * (2 if self.traits.gated else 1) + self.hidden) if self.traits.mlp_bias else 0
        return Tally(self.hidden * inner * (3 if self.traits.gated else 2), bias)

    def _experts(self, experts: Experts) -> Tally:
        width, count = experts.width, experts.count
        if self.options.enable_expert_parallel:
            count = -(-count // self.tp)
        else:
            width //= self.tp
        router = self.hidden * experts.count
        total = Tally(count * width * self.hidden * 3, router)
        if experts.shared_width:
            total += Tally(experts.shared_width // self.tp * self.hidden * 3)
        if experts.shared_gate:
            total += Tally(plain=self.hidden)
        return total
