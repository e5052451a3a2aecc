"""Weights of one rank: parameters and bytes, from the dimensions of the model.

Counted as vLLM builds the modules: column- and row-parallel matrices are split, KV projections replicated where ranks
outnumber KV heads, norms and routers whole on every rank, the vocabulary padded to a multiple of 64. What a vision or
audio tower adds to a language model is not counted.
"""

from dataclasses import dataclass

from exporter.kv.architecture import Architecture
from exporter.kv.dtypes import element_bytes
from exporter.kv.feedforward import FeedForward
from exporter.kv.mixers import Mixers
from exporter.kv.options import EngineOptions
from exporter.kv.placement import model_dtype, stage_shares
from exporter.kv.quantization import read_quantization
from exporter.kv.tally import Tally
from exporter.kv.traits import traits_of

_VOCAB_PADDING = 64


@dataclass(frozen=True, slots=True)
class Weights:
    """What the weights of one rank take; `quantization` names how they are stored, if not in the model's dtype."""

    parameters: int
    bytes: int
    quantization: str | None = None


def count_weights(architecture: Architecture, options: EngineOptions) -> Weights:
    """Weights of the fullest rank: with pipeline stages, the stage with the most."""
    counter = _Counter(architecture, options)
    shares = stage_shares(len(architecture.caches), options.pipeline_parallel_size)
    best, start = Tally(), 0
    for stage, share in enumerate(shares):
        tally = counter.stage(range(start, start + share), first=stage == 0, last=stage == len(shares) - 1)
        best = max(best, tally, key=lambda t: t.parameters)
        start += share
    width = element_bytes(model_dtype(architecture, options))
    quantization = read_quantization(architecture.facts)
    dense = best.matrices * width if quantization.experts_only else quantization.matrix_bytes(best.matrices, width)
    total = dense + quantization.matrix_bytes(best.experts, width) + best.plain * width + best.float32 * 4
    return Weights(best.parameters, total, quantization.name)


class _Counter:
    """Counts one model's modules on one tensor-parallel rank."""

    def __init__(self, architecture: Architecture, options: EngineOptions) -> None:
        self.facts = architecture.facts
        self.layers = len(architecture.caches)
        self.tp = options.tensor_parallel_size
        self.hidden = self.facts.hidden_size
        self.traits = traits_of(self.facts)
        self.caches = architecture.caches
        self.mixers = Mixers(self.facts, self.traits, options)
        self.feedforward = FeedForward(self.facts, self.traits, options, self.layers)

    def stage(self, layers: range, *, first: bool, last: bool) -> Tally:
        """Everything of one pipeline stage: its layers, and the embedding or the head at either end."""
        total = Tally()
        for index in layers:
            total += self._layer(index)
        width = self.facts.integer("word_embed_proj_dim", default=self.hidden)
        vocab = self._rows(self.facts.integer("vocab_size", "padded_vocab_size")) * width
        if first:
            total += self.mixers.shared_blocks()
            total += Tally(plain=vocab + self.traits.positions * self.hidden) + self._per_layer_inputs()
            total += Tally(2 * self.hidden * width) if width != self.hidden else Tally()
        if last:
            total += Tally(plain=self.hidden * self.traits.norm_width * self.traits.final_norms)
            if not (self.traits.tied and first):
                total += Tally(plain=vocab)
            if self.traits.head_bias:
                total += Tally(plain=vocab // width)
        return total

    def _rows(self, vocab: int) -> int:
        return -(-vocab // _VOCAB_PADDING) * _VOCAB_PADDING // self.tp

    def _layer(self, index: int) -> Tally:
        """One layer: what mixes tokens, what transforms each, and the norms around them."""
        total = Tally(plain=self.traits.norms * self.hidden * self.traits.norm_width)
        for cache in self.caches[index]:
            total += self.mixers.count(cache)
        width = self.facts.get("hidden_size_per_layer_input", default=0)
        if width:
            total += Tally(plain=self.hidden) + Tally(2 * self.hidden * width)
        laurel = self.facts.get("laurel_rank", default=0)
        if laurel:
            total += Tally(2 * self.hidden * laurel, plain=2 * self.hidden, float32=self.hidden)
        return total + self.feedforward.count(index)

    def _per_layer_inputs(self) -> Tally:
        """Gemma's second embedding, which gives every layer an input of its own."""
        width = self.facts.get("hidden_size_per_layer_input", default=0)
        if not width:
            return Tally()
        rows = self._rows(self.facts.integer("vocab_size_per_layer_input", "vocab_size"))
        every = width * self.layers
        streams = 2 * max(0, self.facts.integer("altup_num_inputs", default=1) - 1)
        projections = self.hidden * every // self.tp + streams * self.hidden * self.hidden
        return Tally(projections, plain=rows * every + width)
