"""Samples in, one `EngineReading` per engine out; the samples may come from a page or from a recording."""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from exporter.reading import CacheConfig, EngineReading, Histogram
from exporter.sources.vllm_names import Concept, Kind, Part, Place, places, plain_name

_MODEL, _ENGINE = "model_name", "engine"
_REPLICA, _WORKER = "ReplicaId", "WorkerId"
_IDENTITY = frozenset({_MODEL, _ENGINE, _REPLICA, _WORKER})
_ROUNDING = 1e-6

_Rest = tuple[tuple[str, str], ...]
_Group = tuple[Part, str]
_Who = tuple[str, str, str]


class _Found:
    """The series of one concept on one engine, all under the newest name seen so far."""

    __slots__ = ("name", "rank", "values")

    def __init__(self, rank: int, name: str) -> None:
        self.rank = rank
        self.name = name
        self.values: dict[tuple[_Group, _Rest], float] = {}

    def grouped(self, kind: Kind) -> dict[_Group, float]:
        """One value per part and split: several front-ends' counters add up, of their gauges the highest counts.

        vLLM splits gauges by `pid` when several API servers report one engine and each saw it at another moment;
        prometheus_client has then already added up its counters, and other aggregators leave that to the reader.
        """
        result: dict[_Group, float] = {}
        highest = kind in (Kind.GAUGE, Kind.SLEEP)
        for (group, _), value in self.values.items():
            before = result.get(group, 0.0)
            result[group] = max(before, value) if highest else before + value
        return result


def assemble(
    samples: Iterable[tuple[str, Mapping[str, str], float]],
    time: float,
    names: Mapping[str, tuple[Place, ...]] | None = None,
) -> tuple[EngineReading, ...]:
    """Sort `samples` (name, labels, value) by engine; `names` says what is what (default: every prefix known).

    A value that cannot be (not finite, negative, a ratio above 1) is no value. A series that stands there twice
    counts once. Engines come in the order of model and engine label; nothing is ever summed across engines.
    """
    names = places() if names is None else names
    engines: dict[_Who, dict[str, _Found]] = {}
    concepts: dict[str, Concept] = {}
    caches: dict[tuple[str | None, str], set[tuple[str, _Rest]]] = {}
    for name, labels, value in samples:
        for concept, part, rank in names.get(name, ()):
            replica = labels.get(_REPLICA) or labels.get(_WORKER, "")
            if concept.kind is Kind.INFO:
                if value > 0:
                    told = tuple(sorted((k, v) for k, v in labels.items() if k not in _IDENTITY and k != "pid"))
                    caches.setdefault((labels.get(_ENGINE), replica), set()).add((name, told))
                continue
            engine = engines.setdefault((labels.get(_MODEL, ""), labels.get(_ENGINE, "0"), replica), {})
            found = engine.get(concept.field)
            if found is not None and found.rank < rank:
                continue
            believed = _believed(concept, value)
            if believed is None:
                continue
            group, rest = _sorted_labels(concept, part, labels)
            if group is None:
                continue
            if found is None or found.rank > rank:
                found = engine[concept.field] = _Found(rank, plain_name(name, part))
                concepts[concept.field] = concept
            key = (group, rest)
            found.values[key] = max(believed, found.values.get(key, 0.0))

    replicas: dict[tuple[str, str], int] = {}
    for model, label, _ in engines:
        replicas[model, label] = replicas.get((model, label), 0) + 1
    readings = [
        _reading(who, found, concepts, _joined(caches, who), time, alone=replicas[who[:2]] == 1)
        for who, found in engines.items()
    ]
    return tuple(sorted(readings, key=lambda reading: (reading.model_name, len(reading.engine), reading.engine)))


def _believed(concept: Concept, value: float) -> float | None:
    if not (math.isfinite(value) and value >= 0):
        return None
    if concept.at_most is not None and value > concept.at_most:
        return concept.at_most if value <= concept.at_most + _ROUNDING else None
    return value


def _sorted_labels(concept: Concept, part: Part, labels: Mapping[str, str]) -> tuple[_Group | None, _Rest]:
    """The group that a sample belongs to within its concept (`None`: to none), and what else tells it apart."""
    apart = "le" if part is Part.BUCKET else concept.split_by
    if concept.only is not None and labels.get(concept.only[0]) != concept.only[1]:
        return None, ()
    if apart is not None and apart not in labels:
        return None, ()
    rest = tuple((k, v) for k, v in labels.items() if k not in _IDENTITY and k != apart)
    return (part, labels[apart] if apart else ""), rest


def _joined(
    caches: Mapping[tuple[str | None, str], set[tuple[str, _Rest]]], who: _Who
) -> tuple[str, CacheConfig] | None:
    """The cache configuration of an engine: it bears no model name, and before 0.9 no engine either.

    Two that differ for one engine are none: a wrong capacity is worse than an unknown one.
    """
    told = caches.get((who[1], who[2])) or caches.get((None, who[2])) or ()
    if len(told) != 1:
        return None
    ((name, labels),) = told
    return name, cache_config(labels)


def _reading(
    who: _Who,
    engine: Mapping[str, _Found],
    concepts: Mapping[str, Concept],
    cache: tuple[str, CacheConfig] | None,
    time: float,
    *,
    alone: bool,
) -> EngineReading:
    model, label, replica = who
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for field, found in engine.items():
        value = _value(concepts[field], found.grouped(concepts[field].kind))
        if value is not None:
            values[field] = value
            names[field] = found.name
    if cache is not None:
        names["cache"], values["cache"] = cache
    return EngineReading(
        time=time,
        model_name=model,
        engine=label if alone else f"{label}@{replica}",
        names=_shared_names(tuple(names.items())),
        **values,
    )


def _value(concept: Concept, groups: Mapping[_Group, float]) -> Any:
    match concept.kind:
        case Kind.HISTOGRAM | Kind.TOTALS:
            return _histogram(groups)
        case Kind.SLEEP:
            states = [state for (_, state), value in groups.items() if value > 0]
            return states[0] if states else "asleep"
        case _ if concept.split_by is not None:
            return {split: value for (_, split), value in groups.items()}
        case _:
            return groups[Part.VALUE, ""]


def _histogram(groups: Mapping[_Group, float]) -> Histogram | None:
    """A histogram that holds together: bounds rise to +Inf, counts never fall, there is a sum and a count."""
    total = groups.get((Part.SUM, ""))
    buckets = sorted(
        (bound, count)
        for (part, le), count in groups.items()
        if part is Part.BUCKET and (bound := _bound(le)) is not None
    )
    count = groups.get((Part.COUNT, ""), buckets[-1][1] if buckets and buckets[-1][0] == math.inf else None)
    if total is None or count is None:
        return None
    if buckets and buckets[-1][0] < math.inf:
        buckets.append((math.inf, count))
    counts = tuple(count for _, count in buckets)
    if any(later < earlier for earlier, later in pairwise(counts)):
        return None
    return Histogram(_shared_bounds(tuple(bound for bound, _ in buckets)), counts, total, count)


@lru_cache(maxsize=1024)
def _bound(le: str) -> float | None:
    try:
        bound = float(le)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


# Readings are kept by the hundred: what does not change from tick to tick is held once.
@lru_cache(maxsize=256)
def _shared_bounds(bounds: tuple[float, ...]) -> tuple[float, ...]:
    return bounds


@lru_cache(maxsize=256)
def _shared_names(names: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(names)


@lru_cache(maxsize=256)
def cache_config(labels: tuple[tuple[str, str], ...]) -> CacheConfig:
    """What the labels of `cache_config_info` say; "None" and what is no number of the right kind are absent."""
    told = {name: value for name, value in labels if value != "None"}

    def number(name: str) -> float | None:
        try:
            value = float(told[name])
        except (KeyError, ValueError):
            return None
        return value if math.isfinite(value) and value >= 0 else None

    def whole(name: str) -> int | None:
        value = number(name)
        return int(value) if value is not None and value.is_integer() else None

    return CacheConfig(
        block_size=whole("block_size"),
        num_gpu_blocks=whole("num_gpu_blocks"),
        kv_cache_size_tokens=whole("kv_cache_size_tokens"),
        kv_cache_max_concurrency=number("kv_cache_max_concurrency"),
        kv_cache_memory_bytes=whole("kv_cache_memory_bytes"),
        cache_dtype=told.get("cache_dtype"),
        gpu_memory_utilization=number("gpu_memory_utilization"),
        enable_prefix_caching={"True": True, "False": False}.get(told.get("enable_prefix_caching", "")),
        kv_offloading_gib=number("kv_offloading_size"),
        num_gpu_blocks_override=whole("num_gpu_blocks_override"),
        mamba_block_size=whole("mamba_block_size"),
        mamba_cache_mode=told.get("mamba_cache_mode"),
        labels=told,
    )
