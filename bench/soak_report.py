"""What a soak held hour by hour, and whether that is flat."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.census import Growth


@dataclass(frozen=True, slots=True)
class Sample:
    """What was held at the end of an hour, once what is free had been given back."""

    hour: float
    resident_mib: float
    blocks: int
    """Of Python's allocator, in use."""
    traced_mib: float
    held_mib: float
    """By the daemon's own objects, as the census counts them."""
    series: int
    """On the metrics page now."""
    most_series: int
    """On any page of the hour."""
    engines: int
    tick_cpu_ms: float
    """CPU time of a tick, mean of the hour; the world's own not counted."""


def verdict(samples: Sequence[Sample], faults: Sequence[str], growth: Growth) -> Iterator[str]:
    """What is not flat from the first hour on, or else nothing."""
    settled = samples[1:]
    for name in ("resident_mib", "held_mib"):
        values = [getattr(sample, name) for sample in settled]
        if values and max(values) - min(values) > 2.0:
            yield f"{name} lies between {min(values)} and {max(values)} after the first hour"
    yield from faults
    yield from (f"grows: {one}" for one in growth.told())


def resident_mib() -> float:
    """What this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 2)
