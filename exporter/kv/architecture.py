"""config.json → what each layer of the model keeps: attention, a latent vector, or a state.

This module knows the general rule and dispatches to the families that differ from it (`families.py`). The result
speaks of the whole model; `placement.py` puts it on ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.errors import InputError
from exporter.kv.facts import Facts, read_facts
from exporter.kv.states import StateShape


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention that stores K and V of `kv_heads` heads. `window` and `chunk` bound what it looks back at."""

    kv_heads: int
    head_dim: int
    head_dim_v: int
    window: int | None = None
    chunk: int | None = None
    shared: bool = False
    """Reads the cache of an earlier layer and keeps none of its own."""


@dataclass(frozen=True, slots=True)
class Latent:
    """MLA: one vector of `width` elements per token, whole on every tensor-parallel rank.

    `fixed_bytes` replaces the width for caches with a packing of their own, such as the keys of a sparse indexer.
    """

    width: int
    window: int | None = None
    fixed_bytes: int | None = None
    sparse: bool = False
    """Read through an index of keys; in FP8 such a cache has the packed DS-MLA layout."""


_MOST_LAYERS = 1_000
Cache = Attention | Latent | StateShape


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model, as far as its KV cache goes.

    `caches` holds, per layer, what it keeps; a layer that shares another's cache or has none keeps nothing.
    `estimated` names why the result is a guess, if the architecture is not one that is known.
    """

    facts: Facts
    caches: tuple[tuple[Cache, ...], ...]
    estimated: str | None = None

    @property
    def name(self) -> str:
        """The class name vLLM would choose, or the model type."""
        return self.facts.architecture or self.facts.model_type

    @property
    def hybrid(self) -> bool:
        """Whether attention and state layers are mixed."""
        kinds = {isinstance(cache, StateShape) for layer in self.caches for cache in layer}
        return len(kinds) == 2

    @property
    def has_states(self) -> bool:
        """Whether any layer keeps a state."""
        return any(isinstance(cache, StateShape) for layer in self.caches for cache in layer)

    @property
    def has_latents(self) -> bool:
        """Whether any layer is MLA."""
        return any(isinstance(cache, Latent) for layer in self.caches for cache in layer)


def read_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read a parsed config.json. Raises `InputError` with the reason if it is not a model that vLLM could serve."""
    from exporter.kv.families import caches_of

    facts = read_facts(config)
    return caches_of(facts)


def layer_types(facts: Facts) -> list[str] | None:
    """One type per layer: as stated, or by the pattern of the model type; `None` if layers have no types."""
    stated = facts.given("layer_types")
    if isinstance(stated, list) and stated:
        return [str(kind) for kind in stated]
    derived = _derived_types(facts)
    if derived is not None:
        return derived
    pattern = facts.get("layer_types")
    if not isinstance(pattern, list) or not pattern or "layer_types" in facts.text:
        return None
    types = [str(pattern[index % len(pattern)]) for index in range(facts.layers)]
    last = facts.get("layer_types_last")
    if last is not None:
        types[-1] = str(last)
    return types


def _derived_types(facts: Facts) -> list[str] | None:
    """Types that older files state as a period or a first layer instead of a list."""
    period = facts.given("sliding_window_pattern") or facts.given("_sliding_window_pattern")
    if isinstance(period, int) and period > 0:
        return [_nth_full(index, period, "sliding_attention") for index in range(facts.layers)]
    interval = facts.given("full_attention_interval")
    if isinstance(interval, int) and interval > 0:
        return [_nth_full(index, interval, "linear_attention") for index in range(facts.layers)]
    first = facts.get("max_window_layers")
    if facts.get("use_sliding_window") is True and isinstance(first, int):
        return ["sliding_attention" if index >= first else "full_attention" for index in range(facts.layers)]
    return None


def _nth_full(index: int, period: int, other: str) -> str:
    return other if (index + 1) % period else "full_attention"


def checked_layers(facts: Facts) -> int:
    """Number of layers, at least one."""
    count = facts.layers
    if count < 1:
        raise InputError(f"config.json: num_hidden_layers is {count}, but a model has at least one layer")
    if count > _MOST_LAYERS:
        raise InputError(f"config.json: num_hidden_layers is {count}, more than any model has; is the file damaged?")
    return count
