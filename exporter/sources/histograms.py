"""A histogram out of the lines of a page."""

import math
from collections.abc import Mapping
from functools import lru_cache
from operator import gt

from exporter.reading import Histogram
from exporter.sources.vllm_names import Part

Group = tuple[Part, str | float]
"""Which part of a concept, and which of its buckets (by upper bound), reasons or states."""

_MAX_SHARED = 128
"""Bounds of a histogram; vLLM's have up to 30."""


def histogram(groups: Mapping[Group, float]) -> Histogram | None:
    """A histogram that holds together: bounds rise to +Inf, counts never fall, there is a sum and a count."""
    if len(groups) == 2 and (Part.SUM, "") in groups and (Part.COUNT, "") in groups:
        return Histogram((), (), groups[Part.SUM, ""], groups[Part.COUNT, ""])
    buckets = sorted([(bound, count) for (_, bound), count in groups.items() if isinstance(bound, float)])
    bounds = tuple([bound for bound, _ in buckets])
    counts = tuple([count for _, count in buckets])
    total = groups.get((Part.SUM, ""))
    count = groups.get((Part.COUNT, ""), counts[-1] if bounds[-1:] == (math.inf,) else None)
    if total is None or count is None:
        return None
    if bounds and bounds[-1] < math.inf:
        bounds, counts = (*bounds, math.inf), (*counts, count)
    if any(map(gt, counts, counts[1:])):
        return None
    return Histogram(_shared(bounds) if len(bounds) <= _MAX_SHARED else bounds, counts, total, count)


def upper_bound(le: str) -> float | None:
    """The bound that a bucket's `le` tells, `None` if it tells none."""
    try:
        bound = float(le)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


# Readings are kept by the hundred: what does not change from tick to tick is held once.
@lru_cache(maxsize=256)
def _shared(bounds: tuple[float, ...]) -> tuple[float, ...]:
    return bounds
