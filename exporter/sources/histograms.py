"""A histogram out of the lines of a page."""

import math
from collections.abc import Mapping
from functools import lru_cache
from operator import gt

from exporter.reading import Histogram
from exporter.sources.vllm_names import Part

Group = tuple[Part, str]
"""Which part of a concept, and which of its buckets, reasons or states."""


def histogram(groups: Mapping[Group, float]) -> Histogram | None:
    """A histogram that holds together: bounds rise to +Inf, counts never fall, there is a sum and a count."""
    bounds, order = _buckets(tuple(groups))
    counts = tuple([groups[group] for group in order])
    total = groups.get((Part.SUM, ""))
    count = groups.get((Part.COUNT, ""), counts[-1] if bounds[-1:] == (math.inf,) else None)
    if total is None or count is None:
        return None
    if bounds and bounds[-1] < math.inf:
        bounds, counts = (*bounds, math.inf), (*counts, count)
    if any(map(gt, counts, counts[1:])):
        return None
    return Histogram(bounds, counts, total, count)


# Readings are kept by the hundred: what does not change from tick to tick is worked out, and held, once.
@lru_cache(maxsize=1024)
def _buckets(groups: tuple[Group, ...]) -> tuple[tuple[float, ...], tuple[Group, ...]]:
    """The bounds among `groups` in rising order, and the groups in that order; one without a bound is left out."""
    bounded = {}
    for part, le in groups:
        if part is Part.BUCKET and (bound := _bound(le)) is not None:
            bounded[bound] = (part, le)
    rising = sorted(bounded)
    return tuple(rising), tuple(bounded[bound] for bound in rising)


def _bound(le: str) -> float | None:
    try:
        bound = float(le)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound
