"""Levers that need the card as well as the page: a larger share of each GPU, and more of them.

Both are given only where every GPU in sight belongs to the engines in sight, as many as they have ranks: a wrong number
of ranks would make every byte of a rank wrong. Ratios of capacity over now, estimated.
"""

from collections.abc import Sequence
from dataclasses import replace

from exporter.forecast.card_budget import cuda_total, larger_share
from exporter.snapshot import DeviceStatus, EngineStatus


def with_card_levers(
    engines: Sequence[EngineStatus], devices: Sequence[DeviceStatus], ranks: int
) -> tuple[EngineStatus, ...]:
    """The engines, those that have levers with these two added where they can be told; `ranks` is of one engine."""
    if not devices or len(devices) != ranks * len(engines):
        return tuple(engines)
    return tuple(_with(status, devices, ranks) for status in engines)


def _with(status: EngineStatus, devices: Sequence[DeviceStatus], ranks: int) -> EngineStatus:
    if not status.assessment.levers:
        return status
    found = dict(status.assessment.levers)
    share = _share(status, devices)
    if share is not None:
        found[f"gpu_memory_utilization={share[0]:g}"] = share[1]
    if status.capacity.doubled_gain is not None:
        found[f"tensor_parallel_size={2 * ranks}"] = status.capacity.doubled_gain
    return replace(status, assessment=replace(status.assessment, levers=found))


def _share(status: EngineStatus, devices: Sequence[DeviceStatus]) -> tuple[float, float] | None:
    """The next larger share and its gain, where every GPU has that much free beyond its floor."""
    cache, blocks, each = status.reading.cache, status.capacity.usable_blocks, status.capacity.bytes_per_block
    if cache is None or cache.gpu_memory_utilization is None or not blocks or not each:
        return None
    share = larger_share(cache.gpu_memory_utilization)
    if share is None or cache.num_gpu_blocks_override is not None:
        return None
    grown: list[float] = []
    for device in devices:
        reading, risk = device.reading, device.risk
        if reading.total is None or risk.headroom_bytes is None or reading.unified:
            return None
        more = (share - cache.gpu_memory_utilization) * cuda_total(reading.total, reading.reserved)
        if more > risk.headroom_bytes - (risk.floor_bytes or 0):
            return None
        grown.append(more)
    return share, (blocks + min(grown) // each) / blocks
