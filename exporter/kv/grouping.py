"""Layers → groups that share one block table, as vLLM makes them.

One group if all layers are alike, or all of one type with the same tokens per block (their pages then lie side by
side). Otherwise pages are unified to the largest and each type is split into groups of equal layer count; the last
group of a type may hold fewer layers, and that difference is padding.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from exporter.errors import InputError
from exporter.kv.layers import Kind, LayerCache

_FULL = ("full", "mla", "sink")


@dataclass(frozen=True, slots=True)
class Group:
    """Layers behind one block table. `layers[0]` stands for all in what a request holds."""

    layers: tuple[LayerCache, ...]

    @property
    def first(self) -> LayerCache:
        """The layer whose rule decides what a request holds."""
        return self.layers[0]

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block in all layers of the group."""
        return sum(layer.page_bytes for layer in self.layers)


def make_groups(layers: Sequence[LayerCache], *, hybrid: bool = True) -> tuple[Group, ...]:
    """Groups of all layers of the model; `hybrid=False` promotes local attention to full allocation.

    Raises `InputError` if no common page exists.
    """
    if not layers:
        return ()
    layers = list(layers)
    if not hybrid:
        layers = _promoted(layers)
    if len({layer.spec for layer in layers}) == 1 or _one_type(layers):
        return (Group(tuple(layers)),)
    return _split(_unified(layers))


def _one_type(layers: Sequence[LayerCache]) -> bool:
    """Whether all layers always need the same token slots, and so may share a block table."""
    first = layers[0]
    if len({layer.block_size for layer in layers}) > 1 or len({layer.dcp_sharded for layer in layers}) > 1:
        return False
    if first.kind in _FULL:
        return all(layer.kind in _FULL for layer in layers)
    if first.kind == "state":
        return (
            len({(layer.kind, layer.page_bytes, layer.speculative_blocks, layer.checkpoint_blocks) for layer in layers})
            == 1
        )
    return len({(layer.kind, layer.window, layer.chunk) for layer in layers}) == 1


def _unified(layers: Sequence[LayerCache]) -> list[LayerCache]:
    """All pages as large as the largest: more tokens a block where that divides, padding where it does not."""
    largest = max(layer.page_bytes for layer in layers)
    result = []
    for layer in layers:
        if layer.page_bytes == largest:
            result.append(layer)
        elif layer.kind == "state":
            result.append(replace(layer, page_bytes=largest))
        elif largest % layer.page_bytes == 0:
            ratio = largest // layer.page_bytes
            result.append(replace(layer, page_bytes=largest, block_size=layer.block_size * ratio))
        elif layer.kind != "mla":
            result.append(replace(layer, page_bytes=largest))
        else:
            raise InputError(
                f"layer {layer.name}: its page of {layer.page_bytes} bytes does not divide the largest "
                f"page of {largest}, and an MLA page cannot be padded; vLLM refuses this combination too"
            )
    return result


def _split(layers: Sequence[LayerCache]) -> tuple[Group, ...]:
    """Each type into groups of one size: the smallest type's layer count, or the largest's if they are close."""
    buckets: dict[tuple[object, ...], list[LayerCache]] = defaultdict(list)
    for layer in layers:
        buckets[_merge_key(layer)].append(layer)
    counts = [len(bucket) for bucket in buckets.values()]
    size = max(counts) if max(counts) < min(counts) * 1.5 else min(counts)
    groups = []
    for bucket in buckets.values():
        number = -(-len(bucket) // size)
        groups += [Group(tuple(bucket[i::number])) for i in range(number)]
    return tuple(groups)


def _merge_key(layer: LayerCache) -> tuple[object, ...]:
    return layer.spec


def _promoted(layers: Sequence[LayerCache]) -> list[LayerCache]:
    """Local attention allocated as full attention, where the model also has full attention layers."""
    if len({layer.spec for layer in layers}) == 1 or _one_type(layers):
        return list(layers)
    if not any(layer.kind in _FULL for layer in layers):
        return list(layers)
    full_blocks = {layer.block_size for layer in layers if layer.kind in _FULL}
    result = []
    for layer in layers:
        if layer.kind in ("sliding", "chunked", "sliding_mla"):
            block = full_blocks.copy().pop() if len(full_blocks) == 1 else layer.block_size
            page = layer.page_bytes * block // layer.block_size
            kind: Kind = "mla" if layer.kind == "sliding_mla" else "full"
            layer = replace(layer, kind=kind, block_size=block, page_bytes=page, window=None, chunk=None)
        result.append(layer)
    return result
