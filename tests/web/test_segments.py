from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from exporter.reading import DeviceReading
from exporter.snapshot import Capacity, EngineStatus
from exporter.web.segments import segments_of
from exporter.web.status import Segment
from tests.web.scenes import GIB, MOODS, device, engine

OK = engine(MOODS["ok"])


def parts(*engines: EngineStatus, reading: DeviceReading | None = None, devices: int = 1) -> dict[str, Segment]:
    segments = segments_of(reading or device().reading, engines, devices)
    return {segment.kind: segment for segment in segments}


def test_one_engine_on_one_gpu_is_told_in_full() -> None:
    """Weights, KV used and free, other, neighbours, reserved and free, and together the whole card."""
    told = parts(OK)
    assert list(told) == ["weights", "kv_used", "kv_free", "other", "neighbours", "reserved", "free"]
    assert sum(segment.bytes for segment in told.values()) == 40 * GIB
    assert told["weights"].bytes == 15 * GIB
    assert told["kv_used"].bytes + told["kv_free"].bytes == 16 * GIB
    assert told["kv_used"].bytes == int(0.42 * 16 * GIB)
    assert told["neighbours"].bytes == GIB
    assert told["kv_used"].evidence == "reported"
    assert told["weights"].evidence == "estimated"


def test_with_several_engines_on_several_gpus_the_pool_is_whole() -> None:
    """Which engine is on which GPU is not known, so no usage is guessed into a card."""
    told = parts(OK, engine(MOODS["predicted"], "1"), devices=2)
    assert told["kv_pool"].bytes == 16 * GIB
    assert "kv_used" not in told


def test_an_engine_that_does_not_fit_the_measurement_is_not_drawn() -> None:
    """A pool larger than what the server holds is a misread: what was measured is shown alone."""
    small = replace(device().reading, this_process=8 * GIB, used=9 * GIB, free=30 * GIB)
    told = parts(OK, reading=small)
    assert "kv_used" not in told
    assert told["server"].bytes == 8 * GIB


def test_without_process_ids_nothing_is_attributed() -> None:
    """The pool is known to be there; what else is in use is said to be unattributed."""
    blind = replace(device().reading, this_process=None, other_processes=None, unattributed=None)
    told = parts(OK, reading=blind)
    assert told["unattributed"].bytes == 37 * GIB - 31 * GIB
    assert "neighbours" not in told


def test_a_gpu_that_tells_nothing_has_no_parts() -> None:
    """Absent is not zero: without total or use there is no picture."""
    assert segments_of(replace(device().reading, total=None), (OK,), 1) == ()
    assert segments_of(replace(device().reading, used=None), (OK,), 1) == ()


def test_a_machine_that_shares_its_memory_adds_up() -> None:
    """On a unified part, memory used by the machine itself is unattributed, not free."""
    unified = replace(device().reading, reserved=None, used=33 * GIB, this_process=33 * GIB, other_processes=0)
    told = parts(OK, reading=replace(unified, total=64 * GIB, free=20 * GIB, unified=True))
    assert told["free"].bytes == 20 * GIB
    assert told["unattributed"].bytes == 11 * GIB


SIZES = st.none() | st.integers(0, 60 * GIB)


@given(
    used=st.integers(0, 40 * GIB), mine=SIZES, others=SIZES, reserved=SIZES, free=SIZES, pool=SIZES, weights=SIZES,
    usage=st.none() | st.floats(0, 1.2), devices=st.integers(1, 3), count=st.integers(0, 3),
)  # fmt: skip
def test_no_part_is_ever_negative(
    used: int, mine: int | None, others: int | None, reserved: int | None, free: int | None, pool: int | None,
    weights: int | None, usage: float | None, devices: int, count: int,
) -> None:  # fmt: skip
    """Whatever contradictions the sources tell, every part has a size that can be drawn."""
    reading = replace(
        device().reading, used=used, this_process=mine, other_processes=others, reserved=reserved, free=free
    )
    status = replace(
        OK, capacity=Capacity(bytes=pool, weight_bytes=weights), reading=replace(OK.reading, kv_usage=usage)
    )
    for segment in segments_of(reading, (status,) * count, devices):
        assert segment.bytes >= 0
