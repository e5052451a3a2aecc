"""A GPU's memory in parts: weights, KV used, KV free, other, neighbours, reserved, free."""

from collections.abc import Sequence

from exporter.reading import DeviceReading
from exporter.snapshot import EngineStatus
from exporter.web.status import EvidenceKind, Segment, SegmentKind


def segments_of(reading: DeviceReading, engines: Sequence[EngineStatus], devices: int) -> tuple[Segment, ...]:
    """The parts of one of `devices` GPUs; empty when its total or its use is not known.

    What the server holds is split only where it is known which engine is on the GPU and the parts fit into what was
    measured. The page does not tell which engine is on which GPU, so with several engines on several GPUs the pool is
    shown whole. Without process ids, what is neither weights nor pool is `unattributed`.
    """
    if reading.total is None or reading.used is None:
        return ()
    neighbours = reading.other_processes or 0
    resolved = reading.this_process is not None
    mine = reading.this_process if reading.this_process is not None else max(0, reading.used - neighbours)
    inside = _inside(mine, engines, devices)
    rest: SegmentKind = "unattributed" if not resolved else "other" if inside else "server"
    parts = [
        *inside,
        Segment(rest, mine - _sum(inside), "estimated" if inside else "measured"),
        Segment("neighbours", neighbours, "measured"),
        Segment("reserved", reading.reserved or 0, "measured"),
    ]
    left = max(0, reading.total - _sum(parts))
    free = left if reading.free is None else min(left, reading.free)
    parts.append(Segment("unattributed", left - free, "estimated"))
    return (*(part for part in parts if part.bytes > 0), Segment("free", free, "measured"))


def _inside(mine: int, engines: Sequence[EngineStatus], devices: int) -> tuple[Segment, ...]:
    """Weights and pool within the server's bytes on one GPU; empty where that cannot be told."""
    pools = [size for engine in engines if (size := _pool_bytes(engine)) is not None]
    if not pools or len(pools) < len(engines):
        return ()
    weights = [engine.capacity.weight_bytes for engine in engines]
    if len(engines) == 1 or devices == 1:
        pool, model = sum(pools), sum(size or 0 for size in weights) if None not in weights else 0
        used = _used_bytes(engines)
    elif devices % len(engines) == 0:
        pool, model, used = max(pools), max(size or 0 for size in weights), None
    else:
        return ()
    if pool > mine:
        return ()
    evidence: EvidenceKind = "reported" if all(e.capacity.bytes is not None for e in engines) else "estimated"
    whole = [Segment("weights", model, "estimated")] if 0 < model <= mine - pool else []
    if used is None:
        return (*whole, Segment("kv_pool", pool, evidence))
    return (*whole, Segment("kv_used", used, evidence), Segment("kv_free", pool - used, evidence))


def _pool_bytes(engine: EngineStatus) -> int | None:
    size = engine.capacity.bytes
    return size if size is not None else engine.capacity.analytic_bytes


def _used_bytes(engines: Sequence[EngineStatus]) -> int | None:
    """Bytes held by live requests of all `engines` together; `None` unless every one tells its usage."""
    total = 0.0
    for engine in engines:
        usage, pool = engine.reading.kv_usage, _pool_bytes(engine)
        if usage is None or pool is None:
            return None
        total += min(1.0, usage) * pool
    return int(total)


def _sum(parts: Sequence[Segment]) -> int:
    return sum(part.bytes for part in parts)
