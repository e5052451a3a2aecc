"""A metrics page of vLLM: read as prometheus_client reads it, cold, from memory and in pieces, then made engines of."""

import math
import re
from random import Random

from prometheus_client.parser import text_string_to_metric_families

from bench.fuzz.mutation import mutated
from bench.fuzz.target import Target
from exporter.capacity import capacity_of, headroom_of, pool_of
from exporter.reading import EngineReading
from exporter.sources.engines import assemble
from exporter.sources.layout import Assembler
from exporter.sources.page import PageParser, as_float
from exporter.sources.vllm_names import PREFIXES, places
from tests.support.expositions import PAGES, exposition
from tests.support.releases import RELEASES, page_of

TOKENS = (
    *(b'{ } " \\ , = # \t \r \x00 \xff _ 0 -1 NaN +Inf 1e999 1_0 \\n \\" \\\\ {} {" "} ,, == } le= # {'.split(b" ")),
    b" ",
    b"\n",
    b" # ",
    b' # {a="b"} 1',
    b"# TYPE ",
    b" 1795977900000",
    b'engine="0"',
    b'model_name="m",',
    b"vllm:num_requests_running",
    b'{"vllm:kv_cache_usage_perc",',
    "é".encode(),
)
ODD_SPACE = re.compile(r"[^\S \t\n\r\x0b\x0c]")
"""White space that is not ASCII's: the real parser takes some of it for blanks, which the format does not."""
WANTED = frozenset(places(PREFIXES))
LENGTHS = (None, 1, 4096, 10**12)


def expected(page: bytes) -> list[str]:
    """What prometheus_client reads, line by line; a line that it refuses costs itself."""
    found = []
    for line in page.split(b"\n"):
        try:
            families = list(text_string_to_metric_families(line.decode()))
        except (ValueError, IndexError, OverflowError):
            continue
        found += [(s.name, s.labels, as_float(s.value) + 0.0) for f in families for s in f.samples if s.name in WANTED]
    return [repr(sample) for sample in found]


def check(data: bytes) -> None:
    """Every sample is the real parser's, and no reading made of them is impossible."""
    if ODD_SPACE.search(data.decode(errors="replace")):
        return
    truth = expected(data)
    parser = PageParser()
    for pieces in ([data], [data], [data[at : at + 7] for at in range(0, len(data), 7)]):
        samples = list(parser.parse(pieces))
        # -0 is 0, whichever of the two a reader makes of it.
        ours = [repr((name, dict(labels), value + 0.0)) for name, labels, value in samples]
        assert ours == truth, f"{ours} instead of {truth}"
        assert parser.malformed <= data.count(b"\n") + 1
    assembler, readings = Assembler(), assemble(samples, 0.0)
    assert assembler.readings(samples, 0.0) == assembler.readings(samples, 0.0) == readings
    for engine in readings:
        possible(engine)
        for length in LENGTHS:
            capacity = capacity_of(engine.cache, None, length)
            headroom_of(engine, capacity, pool_of(engine.cache, capacity, None))


def possible(engine: EngineReading) -> None:
    """Nothing that a page says becomes a value that cannot be."""
    for value in (engine.kv_usage, engine.cpu_kv_usage):
        assert value is None or 0 <= value <= 1
    for value in (engine.running, engine.waiting, engine.preemptions, engine.finished, engine.prompt_tokens):
        assert value is None or 0 <= value < math.inf
    for lengths in (engine.prompt_lengths, engine.generation_lengths, engine.iteration_tokens):
        if lengths is not None:
            assert list(lengths.bounds) == sorted(set(lengths.bounds))
            assert list(lengths.counts) == sorted(lengths.counts)
            assert math.isfinite(lengths.sum)
            assert math.isfinite(lengths.count)


def lines() -> list[bytes]:
    """Every distinct line of the recorded pages and of the rebuilt ones of older releases."""
    pages = [exposition(name) for name in PAGES] + [page_of(version) for version in RELEASES]
    return sorted({line.encode() for page in pages for line in page.splitlines()})


def mutate(data: bytes, chance: Random) -> bytes:
    """Change a line, or add another."""
    rows = data.split(b"\n")
    at = chance.randrange(len(rows))
    rows[at] = mutated(rows[at], chance, TOKENS, 2048)
    if chance.random() < 0.1:
        rows.insert(at, rows[chance.randrange(len(rows))])
    return b"\n".join(rows)


TARGET = Target(
    name="page",
    check=check,
    seeds=lines,
    tokens=TOKENS,
    mutate=mutate,
    allowed=(),
    longest=2048,
)
