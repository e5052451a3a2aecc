"""What reading vLLM's page costs: parsing alone, engines out of samples, and a whole reading over loopback.

    python -m bench.page_parse

Times are CPU time of the reading thread, best and median of many; the first reading of a page, which parses every
series once, stands apart. The page of N engines repeats the first engine of the recorded two-engine page,
whose own row is the recorded page itself.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

from exporter.sources.engines import assemble
from exporter.sources.page import PageParser, Sample
from exporter.sources.vllm import Access, VllmSource
from tests.support.expositions import TWO_ENGINES, exposition, many_engines
from tests.support.pages import PageServer, answer

READINGS = 100
CHUNK_BYTES = 65_536


def main() -> None:
    """Print one row a page."""
    print(f"{'':>16} {'':>9} {'first':>7} {'parse ms':>15} {'assemble ms':>15} {'read ms':>15}")
    print(f"{'page':>16} {'bytes':>9} {'ms':>7}" + f" {'best':>7} {'median':>7}" * 3)
    rows = [("two-engines.prom", exposition(TWO_ENGINES))]
    rows += [(f"{count} engine(s)", many_engines(count)) for count in (1, 2, 8, 64)]
    slope = []
    for name, text in rows:
        body = text.encode()
        parser = PageParser()

        def parse(parser: PageParser = parser, body: bytes = body) -> list[Sample]:
            return list(parser.parse(body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES)))

        first = cpu_ms(parse)
        costs = [times_ms(parse), times_ms(partial(assemble, parse(), 0.0)), reading_ms(text)]
        figures = "".join(f" {min(cost):>7.2f} {statistics.median(cost):>7.2f}" for cost in costs)
        print(f"{name:>16} {len(body):>9} {first:>7.1f}{figures}")
        slope.append(min(costs[-1]))
    print(f"each engine beyond the eighth costs {(slope[-1] - slope[-2]) / 56:.2f} ms a reading (best)")


def reading_ms(text: str) -> list[float]:
    with PageServer(answer(text)) as server:
        source = VllmSource(server.url, Access(timeout_seconds=30))
        source.read()
        times = times_ms(source.read)
        source.close()
    return times


def times_ms(work: Callable[[], object]) -> list[float]:
    return [cpu_ms(work) for _ in range(READINGS)]


def cpu_ms(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return (time.thread_time() - begun) * 1000


if __name__ == "__main__":
    main()
