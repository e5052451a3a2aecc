"""Samples in, one `EngineReading` per engine out; the samples may come from a page or from a recording."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, cast

from exporter.reading import MOST, CacheConfig, EngineReading
from exporter.sources.cache_config import cache_config_among
from exporter.sources.histograms import Group, histogram, upper_bound
from exporter.sources.names import plain_text
from exporter.sources.samples import Labels
from exporter.sources.vllm_names import PREFIXES, Concept, Kind, Part, Place, places, plain_name

_MODEL, _ENGINE = "model_name", "engine"
_REPLICA, _WORKER = "ReplicaId", "WorkerId"
_IDENTITY = frozenset({_MODEL, _ENGINE, _REPLICA, _WORKER})
_ROUNDING = 1e-6
_MAX_SPLITS = 16
"""Reasons to wait and the like; vLLM knows four."""

_Rest = tuple[tuple[str, str], ...]
Who = tuple[str, str, str]
"""Model, engine and replica."""
Caches = dict[tuple[str | None, str], set[tuple[str, _Rest]]]
"""Engine, if any is named, and replica → name and labels of its configuration, which should be one."""
Field = tuple[Concept, str, Mapping[Group, float]]
"""A concept, the name under which it was found, and its parts."""


class Slot(NamedTuple):
    """Where one series goes: to whom, as what, and what tells it apart from others that go there."""

    who: Who
    concept: Concept
    rank: int
    name: str
    limit: float
    group: Group
    """Which part of the concept, and which bucket, reason or state."""
    rest: _Rest
    """The labels that no engine, no group and no concept accounts for, such as a front-end's `pid`."""


class _Found:
    """The series of one concept on one engine, all under the newest name seen so far."""

    __slots__ = ("concept", "name", "parts", "rank")

    def __init__(self, slot: Slot) -> None:
        self.concept = slot.concept
        self.rank = slot.rank
        self.name = slot.name
        self.parts: dict[_Rest, dict[Group, float]] = {}

    def add(self, slot: Slot, value: float) -> None:
        part = self.parts.get(slot.rest)
        if part is None:
            part = self.parts[slot.rest] = {}
        before = part.get(slot.group)
        if before is None or before < value:
            part[slot.group] = value

    def groups(self) -> dict[Group, float]:
        """One value a group: several front-ends' counters add up, of their gauges the highest counts.

        vLLM splits gauges by `pid` when several API servers report one engine and each saw it at another moment;
        prometheus_client has then already added up its counters, and other aggregators leave that to the reader.
        """
        first, *others = self.parts.values()
        if not others:
            return first
        highest = self.concept.highest_counts
        result = dict(first)
        for part in others:
            for group, value in part.items():
                before = result.get(group, 0.0)
                result[group] = max(before, value) if highest else before + value
        return result


def assemble(
    samples: Iterable[tuple[str, Mapping[str, str], float]],
    time: float,
    prefixes: tuple[str, ...] = PREFIXES,
) -> tuple[EngineReading, ...]:
    """Sort `samples` (name, labels, value) by engine; of several names under `prefixes` the first counts.

    A value that cannot be (not finite, negative, a ratio above 1, a count beyond `MOST`) is no value. A series that
    stands there twice counts once. Engines come in the order of model and engine label; nothing is ever summed across
    engines.
    """
    names = places(prefixes)
    engines: dict[Who, dict[str, _Found]] = {}
    caches: Caches = {}
    for name, labels, value in samples:
        if name not in names:
            continue
        for slot in slots_of(name, labels, prefixes):
            if slot.concept.kind is Kind.INFO:
                if value > 0:
                    add_cache(caches, slot, labels)
                continue
            engine = engines.get(slot.who)
            if engine is None:
                engine = engines[slot.who] = {}
            if not 0 <= value <= slot.limit:  # NaN is not
                continue
            found = engine.get(slot.concept.field)
            if found is None or slot.rank < found.rank:
                found = engine[slot.concept.field] = _Found(slot)
            if slot.rank == found.rank:
                found.add(slot, value)
    fields = {
        who: [(found.concept, found.name, found.groups()) for found in engine.values()]
        for who, engine in engines.items()
    }
    return readings_of(fields, caches, time)


def add_cache(caches: Caches, slot: Slot, labels: Mapping[str, str]) -> None:
    """Take a line of a cache's configuration."""
    owner = (slot.who[1] if _ENGINE in labels else None, slot.who[2])
    caches.setdefault(owner, set()).add((slot.name, slot.rest))


def readings_of(fields: Mapping[Who, Iterable[Field]], caches: Caches, time: float) -> tuple[EngineReading, ...]:
    """One reading per engine, in the order of model and engine label."""
    replicas = Counter((model, label) for model, label, _ in fields)
    beside = Counter((model, replica) for model, _, replica in fields)
    readings = [
        _reading(who, found, _joined(caches, who, beside[who[0], who[2]]), time, alone=replicas[who[:2]] == 1)
        for who, found in fields.items()
    ]
    return tuple(sorted(readings, key=lambda reading: (reading.model_name, len(reading.engine), reading.engine)))


def slots_of(name: str, labels: Mapping[str, str], prefixes: tuple[str, ...]) -> tuple[Slot, ...]:
    """Where a series goes, told once for labels that are kept."""
    kept = labels if isinstance(labels, Labels) else None
    if kept is not None and kept.meaning is not None:
        told_name, told_prefixes, slots = kept.meaning
        if told_name == name and told_prefixes == prefixes:
            return cast("tuple[Slot, ...]", slots)
    found = tuple(slot for place in places(prefixes)[name] if (slot := _slot(place, name, labels)) is not None)
    if kept is not None:
        kept.meaning = name, prefixes, found
    return found


def _slot(place: Place, name: str, labels: Mapping[str, str]) -> Slot | None:
    """Where a series goes within one concept; `None`: it does not count there."""
    concept, apart = place.concept, place.apart
    if concept.only is not None and labels.get(concept.only[0]) != concept.only[1]:
        return None
    told: str | float | None = "" if apart is None else labels.get(apart)
    if told is not None and place.part is Part.BUCKET:
        told = upper_bound(labels["le"])
    if told is None:
        return None
    if isinstance(told, str):
        told = plain_text(told)
    replica = labels.get(_REPLICA) or labels.get(_WORKER, "")
    known = _IDENTITY | {apart} | ({"pid"} if concept.kind is Kind.INFO else set())
    return Slot(
        who=(plain_text(labels.get(_MODEL, "")), plain_text(labels.get(_ENGINE, "0")), plain_text(replica)),
        concept=concept,
        rank=place.rank,
        name=plain_name(name, place.part),
        limit=MOST if concept.at_most is None else concept.at_most + _ROUNDING,
        group=(place.part, told),
        rest=tuple(sorted((label, value) for label, value in labels.items() if label not in known)),
    )


def _joined(caches: Caches, who: Who, engines: int) -> tuple[str, CacheConfig] | None:
    """The cache configuration of an engine: it bears no model name, and before 0.9 no engine either.

    Two that differ for one engine are none: a wrong capacity is worse than an unknown one.
    """
    told = caches.get((who[1], who[2])) or caches.get((None, who[2])) or ()
    if len(told) != 1:
        return None
    ((name, labels),) = told
    return name, cache_config_among(labels, engines)


def _reading(
    who: Who,
    fields: Iterable[Field],
    cache: tuple[str, CacheConfig] | None,
    time: float,
    *,
    alone: bool,
) -> EngineReading:
    model, label, replica = who
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for concept, name, groups in fields:
        value = _value(concept, groups)
        if value is not None:
            values[concept.field] = value
            names[concept.field] = name
    if cache is not None:
        names["cache"], values["cache"] = cache
    return EngineReading(
        time=time,
        model_name=model,
        engine=label if alone else f"{label}@{replica}",
        names=_shared_names(tuple(names.items())),
        **values,
    )


def _value(concept: Concept, groups: Mapping[Group, float]) -> Any:
    match concept.kind:
        case Kind.HISTOGRAM | Kind.TOTALS:
            return histogram(groups)
        case Kind.SLEEP:
            states = [state for (_, state), value in groups.items() if value > 0]
            # Two at once are front-ends that disagree: not known.
            return states[0] if len(states) == 1 else None if states else "asleep"
        case _ if concept.split_by is not None:
            return {split: value for (_, split), value in islice(groups.items(), _MAX_SPLITS)}
        case _:
            value = groups[Part.VALUE, ""]
            return value if concept.at_most is None else min(value, concept.at_most)


# Readings are kept by the hundred: what does not change from tick to tick is held once.
@lru_cache(maxsize=256)
def _shared_names(names: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(names)
