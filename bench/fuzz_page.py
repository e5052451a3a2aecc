"""Fuzz the page parser against prometheus_client's, for a time or a number of inputs.

    python -m bench.fuzz_page [--seconds 60] [--inputs N] [--seed 0]

An input is a page of a few lines, mutated from the recorded pages and the rebuilt ones of older releases. Every input
is read twice, cold and from memory; both readings must be what the real parser makes of each line, and engines must
come out of them without a fault. Ends with exit code 1 at the first input for which that does not hold. Pages with
white space that is not ASCII's are left out: the real parser takes some of it for blanks, which the format does not.
"""

import argparse
import random
import re
import resource
import sys
import time

from prometheus_client.parser import text_string_to_metric_families

from exporter.sources.engines import assemble
from exporter.sources.page import PageParser
from exporter.sources.vllm_names import PREFIXES, places
from tests.support.expositions import PAGES, exposition
from tests.support.releases import RELEASES, page_of

TOKENS = [
    *(b'{ } " \\ , = # \t \r \x00 \xff _ 0 -1 NaN +Inf 1e999 1_0 \\n \\" \\\\ {} {" "} ,, == } le= # {'.split(b" ")),
    b" ",
    b" # ",
    b' # {a="b"} 1',
    b"# TYPE ",
    b" 1795977900000",
    b'engine="0"',
    b'model_name="m",',
    b"vllm:num_requests_running",
    b'{"vllm:kv_cache_usage_perc",',
    "é".encode(),
]
ODD_SPACE = re.compile(r"[^\S \t\n\r\x0b\x0c]")
WANTED = frozenset(places(PREFIXES))


def corpus() -> list[bytes]:
    pages = [exposition(name) for name in PAGES] + [page_of(version) for version in RELEASES]
    return sorted({line.encode() for page in pages for line in page.splitlines()})


def mutated(line: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((0, 1, 1, 2, 3, 6))):
        at = chance.randint(0, len(line))
        match chance.randrange(4):
            case 0:
                line = line[:at] + line[at + chance.randint(1, 8) :]
            case 1:
                line = line[:at] + chance.choice(TOKENS) + line[at:]
            case 2:
                line = line[:at] + bytes([chance.randrange(256)]) + line[at + 1 :]
            case _:
                other = chance.randint(0, len(line))
                line = line[:at] + line[min(at, other) : max(at, other)] + line[at:]
    return line


def expected(page: bytes) -> list[str]:
    found = []
    for line in page.split(b"\n"):
        try:
            families = list(text_string_to_metric_families(line.decode()))
        except (ValueError, IndexError):
            continue
        found += [(s.name, s.labels, float(s.value)) for f in families for s in f.samples if s.name in WANTED]
    return [repr(sample) for sample in found]


def fault(page: bytes, parser: PageParser) -> str | None:
    """What is wrong with the readings of `page`, `None` if nothing is."""
    truth = expected(page)
    for turn in ("cold", "from memory"):
        samples = list(parser.parse([page]))
        ours = [repr(tuple(sample)) for sample in samples]
        if ours != truth:
            return f"{turn}: {ours} instead of {truth}"
        assemble(samples, 0.0)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--inputs", type=int, default=sys.maxsize)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    seeds = corpus()
    reader = PageParser()
    begun, inputs, slowest = time.monotonic(), 0, 0.0
    while inputs < options.inputs and time.monotonic() - begun < options.seconds:
        page = b"\n".join(mutated(chance.choice(seeds), chance) for _ in range(chance.choice((1, 1, 2, 4))))
        if ODD_SPACE.search(page.decode(errors="replace")):
            continue
        started = time.thread_time()
        wrong = fault(page, reader)
        slowest = max(slowest, time.thread_time() - started)
        inputs += 1
        if wrong is not None:
            print(f"input {inputs} of seed {options.seed}: {page!r}\n{wrong}")
            return 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{inputs} inputs in {time.monotonic() - begun:.0f} s, slowest {slowest * 1000:.1f} ms, peak {peak:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
