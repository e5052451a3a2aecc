"""What requests that the test knows hold of the pool while the exporter reads."""

from collections.abc import Sequence

from tests_vllm.exporter import Reading
from tests_vllm.load import Sent
from tests_vllm.paced import BLOCK_SIZE

LAG_SECONDS = 0.5
"""How far the page and the test's own streams may be apart: either is late when all cores are busy."""
GRAIN_SECONDS = 0.02
ARRIVAL_SECONDS = 2.0
"""How long a request may be on its way into the engine when many are sent at once."""


def known(requests: Sequence[Sent], reading: Reading) -> tuple[int, int, int]:
    """Least and most blocks that the requests held around when the server answered, and the most that were live.

    A request without a token may hold nothing yet, or its whole prompt.
    """
    at, sums, most = reading.begun - LAG_SECONDS, [], 0
    while at <= reading.ended + LAG_SECONDS:
        live = [request for request in requests if request.live(at)]
        certain = sum(request.blocks(BLOCK_SIZE, at) for request in live if request.generated(at))
        starting = sum(request.blocks(BLOCK_SIZE, at) for request in live if not request.generated(at))
        sums += [certain, certain + starting]
        most = max(most, len(live))
        at += GRAIN_SECONDS
    return min(sums), max(sums), most


def off_by(requests: Sequence[Sent], reading: Reading, engines: Sequence[str] = ("0",)) -> tuple[float, int]:
    """Blocks by which the exporter's used blocks lie outside what is known, and the requests that were live."""
    least, most, live = known(requests, reading)
    used = [reading.value("kv_used_blocks", engine=engine) for engine in engines]
    told = sum(value for value in used if value is not None)
    return max(least - told, told - most, 0.0), live


def in_the_engine(requests: Sequence[Sent], reading: Reading) -> tuple[int, int]:
    """Least and most requests that the engine had when the server answered: one just sent may be on its way yet."""
    begun, ended = reading.begun - LAG_SECONDS, reading.ended + LAG_SECONDS
    least = sum(r.sent <= reading.begun - ARRIVAL_SECONDS and (r.ended is None or r.ended >= ended) for r in requests)
    most = sum(r.sent <= reading.ended and (r.ended is None or r.ended >= begun) for r in requests)
    return least, most
