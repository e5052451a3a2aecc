"""Samples in, one `EngineReading` per engine out; the samples may come from a page or from a recording."""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from exporter.reading import CacheConfig, EngineReading, Histogram
from exporter.sources.vllm_names import PREFIXES, Concept, Kind, Part, Place, places, plain_name

_MODEL, _ENGINE = "model_name", "engine"
_REPLICA, _WORKER = "ReplicaId", "WorkerId"
_IDENTITY = frozenset({_MODEL, _ENGINE, _REPLICA, _WORKER})
_ROUNDING = 1e-6

_Rest = tuple[tuple[str, str], ...]
_Group = tuple[Part, str]
_Key = tuple[_Group, _Rest]
_Who = tuple[str, str, str]


class _Found:
    """The series of one concept on one engine, all under the newest name seen so far."""

    __slots__ = ("concept", "name", "rank", "values")

    def __init__(self, concept: Concept, rank: int, name: str) -> None:
        self.concept = concept
        self.rank = rank
        self.name = name
        self.values: dict[_Key, float] = {}

    def grouped(self) -> dict[_Group, float]:
        """One value per part and split: several front-ends' counters add up, of their gauges the highest counts.

        vLLM splits gauges by `pid` when several API servers report one engine and each saw it at another moment;
        prometheus_client has then already added up its counters, and other aggregators leave that to the reader.
        """
        result: dict[_Group, float] = {}
        highest = self.concept.kind in (Kind.GAUGE, Kind.SLEEP)
        for (group, _), value in self.values.items():
            before = result.get(group, 0.0)
            result[group] = max(before, value) if highest else before + value
        return result


def assemble(
    samples: Iterable[tuple[str, Mapping[str, str], float]],
    time: float,
    prefixes: tuple[str, ...] = PREFIXES,
) -> tuple[EngineReading, ...]:
    """Sort `samples` (name, labels, value) by engine; of several names under `prefixes` the first counts.

    A value that cannot be (not finite, negative, a ratio above 1) is no value. A series that stands there twice
    counts once. Engines come in the order of model and engine label; nothing is ever summed across engines.
    """
    names = places(prefixes)
    engines: dict[_Who, dict[str, _Found]] = {}
    caches: dict[tuple[str | None, str], set[tuple[str, _Rest]]] = {}
    for name, labels, value in samples:
        for place in names.get(name, ()):
            concept, rank = place.concept, place.rank
            label, replica = labels.get(_ENGINE), labels.get(_REPLICA) or labels.get(_WORKER, "")
            if concept.kind is Kind.INFO:
                if value > 0:
                    told = tuple(sorted((k, v) for k, v in labels.items() if k not in _IDENTITY and k != "pid"))
                    caches.setdefault((label, replica), set()).add((name, told))
                continue
            who = (labels.get(_MODEL, ""), "0" if label is None else label, replica)
            engine = engines.get(who)
            if engine is None:
                engine = engines[who] = {}
            found = engine.get(concept.field)
            key = _key(place, labels)
            if key is None or (found is not None and found.rank < rank) or not _believable(concept, value):
                continue
            if found is None or found.rank > rank:
                found = engine[concept.field] = _Found(concept, rank, plain_name(name, place.part))
            if value > found.values.get(key, -1.0):
                found.values[key] = value

    replicas: dict[tuple[str, str], int] = {}
    for model, label, _ in engines:
        replicas[model, label] = replicas.get((model, label), 0) + 1
    readings = [
        _reading(who, engine, _joined(caches, who), time, alone=replicas[who[:2]] == 1)
        for who, engine in engines.items()
    ]
    return tuple(sorted(readings, key=lambda reading: (reading.model_name, len(reading.engine), reading.engine)))


def _believable(concept: Concept, value: float) -> bool:
    # Not finite includes NaN, which no comparison lets through.
    return 0 <= value < math.inf if concept.at_most is None else 0 <= value <= concept.at_most + _ROUNDING


def _key(place: Place, labels: Mapping[str, str]) -> _Key | None:
    """The group that a sample belongs to within its concept and what else tells it apart; `None`: it does not count."""
    only, apart = place.concept.only, place.apart
    if only is not None and labels.get(only[0]) != only[1]:
        return None
    if apart is not None and apart not in labels:
        return None
    others = labels.keys() - _IDENTITY
    others.discard(apart or "")
    rest = tuple(sorted((name, labels[name]) for name in others)) if others else ()
    return (place.part, labels[apart] if apart is not None else ""), rest


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
    cache: tuple[str, CacheConfig] | None,
    time: float,
    *,
    alone: bool,
) -> EngineReading:
    model, label, replica = who
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for field, found in engine.items():
        value = _value(found.concept, found.grouped())
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
            # Two at once are front-ends that disagree: not known.
            return states[0] if len(states) == 1 else None if states else "asleep"
        case _ if concept.split_by is not None:
            return {split: value for (_, split), value in groups.items()}
        case _:
            value = groups[Part.VALUE, ""]
            return value if concept.at_most is None else min(value, concept.at_most)


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
