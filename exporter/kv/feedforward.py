"""Parameters of what transforms each token: a dense MLP, or a mixture of experts."""

from exporter.kv.facts import Facts
from exporter.kv.moe import Experts, experts_of, sparse_layers
from exporter.kv.options import EngineOptions
from exporter.kv.quantization import read_quantization
from exporter.kv.state_families import nemotron_pattern
from exporter.kv.tally import Tally
from exporter.kv.traits import Traits


class FeedForward:
    """Counts the feed-forward parts of one model on one tensor-parallel rank."""

    def __init__(self, facts: Facts, traits: Traits, options: EngineOptions, layers: int) -> None:
        self.facts = facts
        self.traits = traits
        self.options = options
        self.tp = options.tensor_parallel_size
        self.hidden = facts.hidden_size
        self.layers = layers
        self.pattern = nemotron_pattern(facts) if facts.model_type.startswith("nemotron_h") else None
        self.padding = read_quantization(facts).expert_padding
        self.experts: Experts | None = experts_of(facts)
        self.sparse = sparse_layers(facts, layers) if self.experts else []

    def count(self, index: int) -> Tally:
        """Parameters of layer `index`."""
        if self.pattern is not None:
            return self._lettered(self.pattern[index])
        if not self.traits.feedforward:
            return Tally()
        if self.facts.model_type == "longcat_flash" and self.experts is not None:
            dense = self._dense(index)
            return self._experts(self.experts) + dense + dense
        if self.experts is not None and self.sparse[index]:
            both = self._dense(index) if self.traits.dense_beside_experts else Tally()
            return self._experts(self.experts) + both
        return self._dense(index)

    def _lettered(self, letter: str) -> Tally:
        """Nemotron-H: only the layers that are nothing else transform tokens."""
        if letter == "E" and self.experts is not None:
            return self._experts(self.experts)
        return self._dense(0) if letter == "-" else Tally()

    def _dense(self, index: int) -> Tally:
        inner = self._dense_width(index) // self.tp
        matrices = 3 if self.traits.gated else 2
        bias = (inner * (matrices - 1) + self.hidden) if self.traits.mlp_bias else 0
        return Tally(self.hidden * inner * matrices, bias)

    def _dense_width(self, index: int) -> int:
        value = self.facts.get("intermediate_size_mlp") or self.facts.get(
            "intermediate_size",
            "n_inner",
            "ffn_dim",
            "ffn_hidden_size",
            "dense_intermediate_size",
            default=4 * self.hidden,
        )
        if isinstance(value, list):
            value = value[index % len(value)]
        if self.facts.get("block_auto_adjust_ff_dim", default=self.facts.model_type == "lfm2"):
            multiple = self.facts.integer("block_multiple_of", default=256)
            value = int(self.facts.get("block_ffn_dim_multiplier", default=1.0) * int(2 * value / 3))
            value = -(-value // multiple) * multiple
        shared = self.facts.get("num_kv_shared_layers", default=0)
        if self.facts.get("use_double_wide_mlp", default=False) and shared and index >= self.layers - shared:
            value *= 2
        return int(value)

    def _experts(self, experts: Experts) -> Tally:
        width, count = experts.width, experts.count
        if self.options.enable_expert_parallel:
            count = -(-count // self.tp)
        else:
            width //= self.tp
        if self.padding:
            width = -(-width // self.padding) * self.padding
        matrices = 3 if self.traits.gated else 2
        outputs = experts.count + self.facts.integer("zero_expert_num", default=0)
        router = self.hidden * outputs
        total = Tally(experts=count * width * self.hidden * matrices)
        total += Tally(float32=router + outputs) if self.traits.router_float32 else Tally(plain=router)
        if self.traits.expert_bias:
            total += Tally(plain=count * (width * (matrices - 1) + self.hidden) + experts.count)
        if self.traits.expert_correction:
            total += Tally(float32=outputs)
        if experts.shared_width:
            total += Tally(experts.shared_width // self.tp * self.hidden * matrices)
        if experts.shared_gate:
            total += Tally(plain=self.hidden)
        return total
