"""Parameters of what mixes tokens: attention, MLA, state-space layers."""

from exporter.kv.architecture import Attention, Cache, Latent
from exporter.kv.facts import Facts
from exporter.kv.options import EngineOptions
from exporter.kv.placement import kv_heads_per_rank
from exporter.kv.states import StateShape
from exporter.kv.tally import Tally
from exporter.kv.traits import Traits

_WHOLE_NORMS = ("flex_olmo", "olmo2", "olmo3")
"""Their norms over all heads are whole on every rank."""
_GATED_ATTENTION = ("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")


class Mixers:
    """Counts the mixers of one model on one tensor-parallel rank."""

    def __init__(self, facts: Facts, traits: Traits, options: EngineOptions) -> None:
        self.facts = facts
        self.traits = traits
        self.tp = options.tensor_parallel_size
        self.hidden = facts.hidden_size

    def count(self, cache: Cache) -> Tally:
        """Parameters of the mixer that keeps `cache`."""
        if isinstance(cache, Attention):
            if self.facts.model_type == "zamba2":
                return self._shared_block_use()
            return self._projections() if self.facts.model_type == "minicpm3" else self._attention(cache)
        if isinstance(cache, Latent):
            return self._projections() if cache.fixed_bytes is None else self._indexer()
        return self._state(cache)

    def _attention(self, cache: Attention) -> Tally:
        heads = self._query_heads(cache) // self.tp
        kv_heads = 0 if cache.shared else kv_heads_per_rank(cache.kv_heads, self.tp)
        q, k, v = heads * cache.head_dim, kv_heads * cache.head_dim, kv_heads * cache.head_dim_v
        plain = 0
        if self.traits.qkv_bias:
            plain += q + k + v
        if self.traits.out_bias:
            plain += self.hidden
        if self.traits.sinks:
            plain += heads
        if self.traits.qk_norm == "head":
            plain += (1 if cache.shared else 2) * cache.head_dim
        elif self.traits.qk_norm == "width":
            whole = self.facts.model_type in _WHOLE_NORMS
            plain += (self.facts.heads + cache.kv_heads) * cache.head_dim if whole else q + k
        gate = 2 if self.facts.get("attn_output_gate", default=self.facts.model_type in _GATED_ATTENTION) else 1
        return Tally(self.hidden * (gate * q + k + v) + heads * cache.head_dim_v * self.hidden, plain)

    def _query_heads(self, cache: Attention) -> int:
        """Windowed layers of some models have more query heads than the others."""
        other = self.facts.get("attention_other_setting")
        if cache.window is not None and isinstance(other, dict) and other.get("num_attention_heads"):
            return int(other["num_attention_heads"])
        if cache.window is not None:
            return self.facts.integer("swa_num_attention_heads", default=self.facts.heads)
        return self.facts.heads

    def _indexer(self) -> Tally:
        """What chooses the tokens that sparse attention reads; whole on every rank."""
        heads = self.facts.integer("index_n_heads", default=64)
        dim = self.facts.integer("index_head_dim", default=128)
        rank = self.facts.integer("q_lora_rank", default=self.hidden)
        return Tally(rank * heads * dim + self.hidden * (dim + heads), float32=2 * dim)

    def _projections(self) -> Tally:
        """MLA: down to the latent vector and up to the heads again."""
        facts = self.facts
        heads = facts.heads // self.tp
        nope, rope = facts.integer("qk_nope_head_dim"), facts.integer("qk_rope_head_dim")
        value, rank = (
            facts.integer("v_head_dim", default=facts.hidden_size // max(1, facts.heads)),
            facts.integer("kv_lora_rank"),
        )
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
            return Tally(matrices, inner * (cache.conv_kernel + 3) + norms, inner * cache.state_dim)
        if cache.kind == "mamba2":
            groups = cache.groups if cache.groups % tp == 0 else tp
            inner, states = cache.conv_dim // tp, 2 * groups * cache.state_dim // tp
            heads = cache.heads // tp
            matrices = hidden * (2 * inner + states + heads) + inner * hidden
            norm = 0 if self.facts.get("mamba_rms_norm") is False else inner
            return Tally(matrices, (inner + states) * (cache.conv_kernel + 1) + norm + 2 * heads, heads)
        if cache.kind == "gated_delta":
            key = (cache.conv_dim - cache.heads * cache.head_dim) // tp
            value, heads = cache.heads * cache.head_dim // tp, cache.heads // tp
            matrices = hidden * (key + 2 * value + 2 * heads) + value * hidden
            return Tally(matrices, (key + value) * cache.conv_kernel + heads + cache.head_dim, heads)
        if cache.kind == "short_conv":
            inner = cache.conv_dim // tp
            return Tally(4 * hidden * inner, inner * cache.conv_kernel)
        if cache.kind == "delta_kda":
            inner, heads = cache.heads * cache.head_dim // tp, cache.heads // tp
            gates = 2 * (hidden * cache.head_dim + cache.head_dim * inner) + hidden * heads
            return Tally(4 * hidden * inner + gates, 3 * inner * cache.conv_kernel + cache.head_dim, inner + heads)
        inner = cache.heads * cache.head_dim // tp
        return Tally(5 * hidden * inner, inner)

    def shared_blocks(self) -> Tally:
        """Zamba2's transformer blocks, each used by many layers: attention on twice the width, and an MLP."""
        if self.facts.model_type != "zamba2":
            return Tally()
        facts, hidden = self.facts, self.hidden
        inner = facts.integer("intermediate_size", default=4 * hidden)
        width = facts.heads * facts.integer("attention_head_dim", default=2 * hidden // facts.heads)
        matrices = 2 * hidden * 3 * width + width * hidden + 3 * hidden * inner
        count = facts.integer("num_mem_blocks", default=1)
        return Tally(count * matrices // self.tp, count * 3 * hidden)

    def _shared_block_use(self) -> Tally:
        """What one use of a shared block has for itself: low-rank adapters and a projection back."""
        rank = self.facts.integer("adapter_rank", default=128)
        inner = self.facts.integer("intermediate_size", default=4 * self.hidden)
        return Tally(rank * (self.hidden + 2 * inner // self.tp) + self.hidden * self.hidden)
