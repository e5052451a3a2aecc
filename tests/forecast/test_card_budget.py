"""What vLLM's share of a card allows it, now and at its next start."""

from dataclasses import replace

from exporter.forecast.card_budget import next_start_bytes
from exporter.forecast.device import DeviceForecaster
from exporter.reading import DeviceReading

GIB = 2**30
RUNNING = DeviceReading(
    time=0.0,
    index=0,
    uuid="GPU-1",
    total=24 * GIB,
    used=22 * GIB,
    free=2 * GIB,
    reserved=0,
    this_process=18 * GIB,
    other_processes=4 * GIB,
    unattributed=0,
)


def test_a_neighbour_that_took_the_share_fails_the_next_start() -> None:
    """20 of 24 GiB are free once the server is gone, and a share of 0.9 wants 21.6: 1.6 GiB are lacking."""
    share = int(0.9 * 24 * GIB)
    assert next_start_bytes(RUNNING, 0.9, None) == 20 * GIB - share
    assert next_start_bytes(replace(RUNNING, other_processes=0), 0.9, None) == 24 * GIB - share


def test_weights_beyond_the_share_fail_the_next_start() -> None:
    """0.25 of 24 GiB is less than weights of 7 GiB, whatever else is free."""
    assert next_start_bytes(RUNNING, 0.25, 7 * GIB) == -GIB


def test_what_cannot_be_told_is_absent() -> None:
    """Without the share, without knowing whose memory is whose, and on a unified part there is no figure."""
    assert next_start_bytes(RUNNING, None, None) is None
    assert next_start_bytes(replace(RUNNING, other_processes=None), 0.9, None) is None
    assert next_start_bytes(replace(RUNNING, unified=True), 0.9, None) is None


def test_a_server_that_is_down_starts_with_what_it_had() -> None:
    """Its share and weights are remembered from its last page, so the figure is there when it matters most."""
    forecaster = DeviceForecaster()
    up = forecaster.observe(RUNNING, gpu_memory_utilization=0.9, weight_bytes=GIB)
    gone = replace(RUNNING, time=100.0, used=4 * GIB, free=20 * GIB, this_process=0)
    down = forecaster.observe(gone, serving=False)
    assert up.next_start_bytes == down.next_start_bytes == 20 * GIB - int(0.9 * 24 * GIB)
