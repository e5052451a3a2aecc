"""A larger share of the card and more cards, as levers on a running engine."""

from dataclasses import replace

import pytest

from exporter.card_levers import with_card_levers
from exporter.reading import CacheConfig
from exporter.snapshot import DeviceStatus, EngineStatus
from tests.support.snapshots import full_device, full_engine

GIB = 2**30
SHARE, RANKS = "gpu_memory_utilization=0.93", "tensor_parallel_size=2"


def engine(**cache: float) -> EngineStatus:
    status = full_engine()
    told = CacheConfig(block_size=16, num_gpu_blocks=8193, gpu_memory_utilization=cache.get("share", 0.9))
    capacity = replace(status.capacity, doubled_gain=3.2)
    return replace(status, reading=replace(status.reading, cache=told), capacity=capacity)


def card(free: int) -> DeviceStatus:
    device = full_device()
    reading = replace(device.reading, total=80 * GIB, reserved=0)
    return DeviceStatus(reading, replace(device.risk, headroom_bytes=free, floor_bytes=GIB // 8))


def test_free_memory_becomes_blocks() -> None:
    """3 % of 80 GiB is 2.4 GiB, which is 1,228 blocks of 2 MiB on 8,192."""
    (status,) = with_card_levers([engine()], [card(4 * GIB)], 1)
    assert status.assessment.levers[SHARE] == pytest.approx((8192 + 1228) / 8192)
    assert status.assessment.levers[RANKS] == 3.2
    assert "max_num_seqs" in status.assessment.levers, "the others stay"


def test_a_card_without_room_has_no_larger_share_to_give() -> None:
    """Nor has one whose share is large already; twice the cards are a lever all the same."""
    for status, free in ((engine(), 2 * GIB), (engine(share=0.95), 4 * GIB)):
        (told,) = with_card_levers([status], [card(free)], 1)
        assert not [name for name in told.assessment.levers if name.startswith("gpu_memory")]
        assert RANKS in told.assessment.levers


@pytest.mark.parametrize(("engines", "cards", "ranks"), [(1, 2, 1), (1, 0, 1), (1, 1, 2), (2, 1, 1)])
def test_cards_that_do_not_match_the_ranks_tell_nothing(engines: int, cards: int, ranks: int) -> None:
    """Where a rank's bytes may be misjudged, both levers are absent."""
    for status in with_card_levers([engine()] * engines, [card(4 * GIB)] * cards, ranks):
        assert not {SHARE, RANKS} & set(status.assessment.levers)


def test_an_engine_without_a_forecast_has_no_levers() -> None:
    """Levers come with a projection, these too."""
    status = engine()
    status = replace(status, assessment=replace(status.assessment, levers={}))
    assert with_card_levers([status], [card(4 * GIB)], 1)[0].assessment.levers == {}
