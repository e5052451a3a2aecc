"""Whatever a reading runs into, wherever: the source is down for it, and one of the two after it is good."""

import contextlib
import gc
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from exporter.forecast.assessment import ForecastOptions
from exporter.sources.vllm import Access, VllmSource
from exporter.watch import ModelFacts, ServerStatus, ServerWatch
from tests.support import pages
from tests.support.expositions import exposition

PAGE = exposition("vllm-0.32-one-engine-full.prom")
STEPS = 60
"""Places at which a reading is broken off, spread over all of its lines."""


class NoModels:
    """Nothing is known of any model."""

    health = None

    def facts(self, _model_name: str, _cache: object, _now: float) -> ModelFacts:
        return ModelFacts()


@contextlib.contextmanager
def breaking(at: int, error: type[Exception]) -> Iterator[list[int]]:
    """Raise `error` at the `at`-th line that is run within our package and the HTTP libraries; counts the lines."""
    lines = [0]

    def look(frame: FrameType, event: str, _argument: Any) -> Any:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("exporter.", "httpx.", "httpcore.", "h11.")):
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == at:
                raise error
        return look

    sys.settrace(look)
    try:
        yield lines
    finally:
        sys.settrace(None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket may be left to the collector
@pytest.mark.parametrize(("error", "reason"), [(MemoryError, "out_of_memory"), (ValueError, "fault")])
def test_a_reading_that_breaks_anywhere_is_down_and_overcome_within_two(error: type[Exception], reason: str) -> None:
    """No line of a reading leaves a connection, a parser or a forecast behind that the next reading trips over."""
    with pages.PageServer(pages.answer(PAGE)) as server:
        source = VllmSource(server.url, Access(timeout_seconds=5))
        watch = ServerWatch(source, NoModels(), ForecastOptions(), lambda: 1.0)
        watch.read()
        with breaking(0, error) as lines:
            good = watch.read()
        assert good.sources[0].up
        told = set()
        for at in range(1, lines[0], lines[0] // STEPS):
            with breaking(at, error):
                broken: ServerStatus | None = None
                with contextlib.suppress(error):  # before there was anything to read, or in the line that says so
                    broken = watch.read()
            if broken is not None:
                told.add(broken.sources[0].reason)
                if not broken.sources[0].up:
                    assert {status.assessment.state for status in broken.engines} == {"unknown"}
            after = watch.read()
            if not after.sources[0].up:
                after = watch.read()
            assert after.sources[0].up, (at, after.sources[0].message)
            assert [status.used_blocks for status in after.engines] == [status.used_blocks for status in good.engines]
        assert reason in told
        watch.close()
        del watch, source
        gc.collect()
