"""A read that hangs costs its own source and nothing else."""

import threading

import pytest

from exporter.errors import SourceError
from exporter.sources.nvml import NvmlSource
from exporter.sources.patience import Patience
from tests.sources.fakes import FakeLibrary, gpu


def test_answers_and_errors_pass_through() -> None:
    """What the read returns or raises is what the caller gets."""

    def read(now: float) -> float:
        if now < 0:
            raise SourceError("x", "refused", "no")
        return now * 2

    patience = Patience("x", read, 5)
    assert patience.read(2.0) == 4.0
    with pytest.raises(SourceError, match="no"):
        patience.read(-1.0)
    assert patience.read(3.0) == 6.0
    patience.close()


def test_a_read_that_hangs_is_a_timeout_at_once_and_is_not_repeated() -> None:
    """One call hangs; no second is made into the same hole; when it returns, its stale answer is dropped."""
    release, calls, entered = threading.Event(), [], threading.Event()

    def read(now: float) -> float:
        calls.append(now)
        if now == 1.0:
            entered.set()
            release.wait(30)
        return now

    patience = Patience("x", read, 0.05)
    for now in (1.0, 2.0, 3.0):
        with pytest.raises(SourceError) as error:
            patience.read(now)
        assert error.value.reason == "timeout"
    assert entered.wait(5)
    assert (calls, patience.hanging) == ([1.0], True)
    release.set()
    while patience.hanging:
        threading.Event().wait(0.001)
    generous = Patience("x", read, 5)
    assert generous.read(4.0) == 4.0
    assert calls == [1.0, 4.0]
    patience.close()
    generous.close()


def test_a_late_answer_is_never_taken_for_a_new_one() -> None:
    """After a hang the next reading is of its own time."""
    release = threading.Event()

    def read(now: float) -> float:
        if now == 1.0:
            release.wait(30)
        return now

    patience = Patience("x", read, 0.2)
    with pytest.raises(SourceError):
        patience.read(1.0)
    release.set()
    while patience.hanging:
        threading.Event().wait(0.001)
    patience._seconds = 30
    assert patience.read(2.0) == 2.0
    patience.close()


def test_a_hanging_driver_takes_down_nvml_and_close_returns() -> None:
    """A GPU whose driver never answers costs two seconds once, and the end of the process does not wait for it."""
    release = threading.Event()
    library = FakeLibrary(gpu())
    shown = library.devices

    def hang() -> None:
        release.wait(30)

    library.open = hang  # type: ignore[method-assign]
    source = NvmlSource(library=library, timeout_seconds=0.05)
    for now in (0.0, 1.0):
        with pytest.raises(SourceError, match="may hang in the driver") as error:
            source.read(now)
        assert error.value.reason == "timeout"
    source.close()
    assert library.closed == 0
    release.set()
    assert len(shown()) == 1


def test_reads_after_a_close_start_anew() -> None:
    """A closed source can be read again."""
    source = NvmlSource(library=FakeLibrary(gpu()), timeout_seconds=30)
    assert source.read(0.0)
    source.close()
    assert source.read(1.0)
    source.close()
