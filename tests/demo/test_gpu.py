"""The embedded GPU through the eyes of the source that reads NVML."""

from exporter.demo.gpu import DemoGpus
from exporter.sources.device import ProcessView
from exporter.sources.gpus import GpuSource

PID = 4242


def test_it_reads_like_a_card() -> None:
    """The source reads one card for each engine; its parts add up and all that is held is the server's."""
    view = ProcessView(server=frozenset({PID}), visible=lambda _: True)
    source = GpuSource(DemoGpus([2588, 2588], PID), processes=lambda _: view)
    readings = source.read(0.0)
    source.close()
    assert [reading.index for reading in readings] == [0, 1]
    assert len({reading.uuid for reading in readings}) == 2
    for reading in readings:
        assert not reading.missing
        assert reading.used is not None
        assert reading.free is not None
        assert reading.reserved is not None
        assert reading.total == reading.used + reading.free + reading.reserved
        assert reading.this_process == reading.used
        assert reading.other_processes == 0


def test_a_larger_pool_holds_more() -> None:
    """A block more is two MiB more in use."""
    small, large = DemoGpus([2588, 2589], PID).devices()
    assert large.memory().used - small.memory().used == 2 * 2**20
