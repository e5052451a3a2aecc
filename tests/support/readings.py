"""Reading a page that stands in a test."""

from exporter.reading import EngineReading
from exporter.sources.engines import assemble
from exporter.sources.page import parse_page
from tests.support.expositions import gauge, series


def engines_of(text: str) -> tuple[EngineReading, ...]:
    """The readings of a page, at time 10."""
    return assemble(parse_page(text), time=10.0)


def engine_of(text: str) -> EngineReading:
    """The reading of a page with one engine."""
    (engine,) = engines_of(text)
    return engine


def info(**labels: str) -> str:
    """A line of `cache_config_info`."""
    return series("vllm:cache_config_info", 1, **labels)


def lengths(name: str, counts: dict[str, float | str], total: float | str, count: float | str, **labels: str) -> str:
    """The lines of a histogram."""
    text = "".join(gauge(f"{name}_bucket", value, le=le, **labels) for le, value in counts.items())
    return text + gauge(f"{name}_sum", total, **labels) + gauge(f"{name}_count", count, **labels)
