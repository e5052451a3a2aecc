"""Pages of one server that hold the same series in the same order: where each value goes is worked out once.

A page of sixty engines has thousands of wanted lines, and from page to page nothing but their values changes. Where
anything else does, or a value cannot be, the page is sorted line by line.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_, le
from typing import Self

from exporter.reading import EngineReading
from exporter.sources.engines import Caches, Field, Slot, Who, add_cache, assemble, readings_of, slots_of
from exporter.sources.histograms import Group
from exporter.sources.samples import Sample
from exporter.sources.vllm_names import PREFIXES, Concept, Kind, places


@dataclass(frozen=True, slots=True)
class _Spread:
    """A concept on one engine: under which name, and for each of its parts the lines that hold it."""

    concept: Concept
    name: str
    lines: tuple[tuple[Group, tuple[int, ...]], ...]

    def field(self, values: Sequence[float]) -> Field:
        """With the values of the lines of a page."""
        merge = max if self.concept.highest_counts else sum
        groups = {
            group: values[lines[0]] if len(lines) == 1 else merge([values[line] for line in lines])
            for group, lines in self.lines
        }
        return self.concept, self.name, groups


@dataclass(frozen=True, slots=True)
class Layout:
    """The wanted series of a page, in order, and where their values go."""

    labels: list[Mapping[str, str]]
    limits: list[float]
    infos: tuple[int, ...]
    engines: Mapping[Who, tuple[_Spread, ...]]
    caches: Caches

    @classmethod
    def of(cls, samples: Sequence[Sample], prefixes: tuple[str, ...]) -> Self | None:
        """That of a page; `None` if a series stands there twice, for which its value decides."""
        limits, infos = [float("inf")] * len(samples), []
        found: dict[Who, dict[str, dict[Group, dict[object, int]]]] = {}
        best: dict[tuple[Who, str], Slot] = {}
        caches: Caches = {}
        for line, (name, labels, _) in enumerate(samples):
            for slot in slots_of(name, labels, prefixes):
                if slot.concept.kind is Kind.INFO:
                    infos.append(line)
                    add_cache(caches, slot, labels)
                    continue
                limits[line] = min(limits[line], slot.limit)
                key = slot.who, slot.concept.field
                before = best.setdefault(key, slot)
                fields = found.setdefault(slot.who, {})
                if slot.rank < before.rank:
                    best[key] = slot
                    fields[slot.concept.field] = {}
                elif slot.rank > before.rank:
                    continue
                lines = fields.setdefault(slot.concept.field, {}).setdefault(slot.group, {})
                if slot.rest in lines:
                    return None
                lines[slot.rest] = line
        engines = {
            who: tuple(
                _Spread(
                    best[who, field].concept,
                    best[who, field].name,
                    tuple((group, tuple(lines.values())) for group, lines in groups.items()),
                )
                for field, groups in fields.items()
            )
            for who, fields in found.items()
        }
        return cls([sample.labels for sample in samples], limits, tuple(infos), engines, caches)

    def holds(self, samples: Sequence[Sample], values: Sequence[float]) -> bool:
        """Whether a page has the same series, each with a value that can be."""
        return (
            len(samples) == len(self.labels)
            and all(map(is_, [sample.labels for sample in samples], self.labels))
            and all(map(le, values, self.limits))  # NaN is not
            and min(values, default=0.0) >= 0.0
            and all(values[line] > 0 for line in self.infos)
        )

    def readings(self, values: Sequence[float], time: float) -> tuple[EngineReading, ...]:
        """What `assemble` makes of a page that this layout holds for."""
        fields = {who: [spread.field(values) for spread in spreads] for who, spreads in self.engines.items()}
        return readings_of(fields, self.caches, time)


class Assembler:
    """Makes readings of the pages of one server; remembers how the last one was laid out."""

    def __init__(self, prefixes: tuple[str, ...] = PREFIXES) -> None:
        """`prefixes` in the order in which they are preferred."""
        self._prefixes = prefixes
        self._layout: Layout | None = None

    def readings(self, samples: Iterable[Sample], time: float) -> tuple[EngineReading, ...]:
        """As `assemble` does, of samples whose labels are the same objects from page to page."""
        known = places(self._prefixes)
        page = [sample for sample in samples if sample.name in known]
        values = [sample.value for sample in page]
        if self._layout is not None and self._layout.holds(page, values):
            return self._layout.readings(values, time)
        self._layout = Layout.of(page, self._prefixes)
        return assemble(page, time, self._prefixes)
