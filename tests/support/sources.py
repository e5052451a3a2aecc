"""A source of vLLM's page as the tests of its faults make it."""

import pytest

from exporter.errors import SourceError
from exporter.sources.vllm import Access, VllmSource

LIMIT = 1024 * 1024


def source_of(url: str, **access: object) -> VllmSource:
    """A source with a limit of 1 MiB and 5 s, or as `access` says."""
    return VllmSource(url, Access(**{"timeout_seconds": 5.0, "body_limit_bytes": LIMIT} | access))  # type: ignore[arg-type]


def fault_of(source: VllmSource) -> SourceError:
    """The one fault of a reading, which must have a message of one line."""
    with pytest.raises(SourceError) as error:
        source.read()
    assert error.value.source == "vllm"
    assert "\n" not in str(error.value)
    return error.value
