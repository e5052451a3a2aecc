"""The text of a metrics page, of which only the wanted lines are parsed.

A page of vLLM has some four hundred and fifty lines an engine, of which a quarter is wanted, and what stands before a
value seldom changes between two readings: a series is parsed once, by prometheus_client, and known again by its text.
"""

import math
from collections.abc import Iterable, Iterator
from sys import intern

from prometheus_client.parser import text_string_to_metric_families

from exporter.sources.samples import Labels, Sample
from exporter.sources.vllm_names import PREFIXES, PROCESS_START, places

__all__ = ["PageParser", "Sample", "parse_page"]

MAX_LINE_BYTES = 65_536
"""vLLM's longest line has about 1,300."""
SPARE_BYTES = 128 * 1024
"""Of the text of series that are remembered although the last page did not show them; they take ten times as much."""
SPARE_PAGES = 300
"""After so many pages what the last one did not show is forgotten, however little it is."""
MAX_OTHER_NAMES = 4_096
MAX_NAME_BYTES = 256
_CHUNK_BYTES = 65_536
_OVERLONG = b"\0"


class PageParser:
    """Reads pages of one server and remembers the series it has met, within bounds.

    After a page, `malformed` counts its lines that are no sample, each of which cost itself alone: of the wanted ones
    every one, of the others those whose name was never seen on a sample. `recognised` says whether there was at least
    one sample or comment of a metrics page, `process_start_time` when the process that wrote it began.
    """

    def __init__(self, prefixes: tuple[str, ...] = PREFIXES) -> None:
        """Wanted is what vLLM has ever shown of what we read, under any of `prefixes`."""
        self._wanted = {name.encode(): intern(name) for name in (*places(prefixes), PROCESS_START)}
        self._others: set[bytes] = set()
        self._series: dict[bytes, tuple[str, Labels]] = {}
        self._before: dict[bytes, tuple[str, Labels]] = {}
        """Of which this page keeps what it shows, when it is time to forget the rest."""
        self._pages = 0
        # Not `sys.intern`: in Python 3.12 what it is given stays for ever.
        self._texts: dict[str, str] = {}
        self._remembered = 0
        self._shown = 0
        self.malformed = 0
        self.recognised = False
        self.process_start_time: float | None = None

    def parse(self, chunks: Iterable[bytes]) -> Iterator[Sample]:
        """The wanted samples of a page that arrives in `chunks`, in its order; a repeated one is repeated."""
        self.malformed = 0
        self.recognised = False
        self.process_start_time = None
        self._pages += 1
        self._before = {}
        if self._remembered > self._shown + SPARE_BYTES or self._pages % SPARE_PAGES == 0:
            self._before, self._series, self._texts = self._series, {}, {}
            self._remembered = 0
        self._shown = 0
        others, wanted = self._others, self._wanted
        for lines in lines_by_chunk(chunks):
            for line in lines:
                # Cut at the brace, nearly every line is known to one of the two, and the rest is looked at closely.
                name = line[: line.find(b"{")]
                if name in others:
                    self.recognised = True
                elif name in wanted or self._wants(line):
                    sample = self._sample(line)
                    if sample is None:
                        self.malformed += 1
                        continue
                    self.recognised = True
                    if sample.name == PROCESS_START:
                        self.process_start_time = sample.value if 0 < sample.value < math.inf else None
                    else:
                        yield sample

    def _wants(self, line: bytes) -> bool:
        """Whether a line that is not as most lines are is a wanted one; learn its name, or count it, if it is not."""
        line = line.strip()
        if not line or line.startswith(b"#"):
            self.recognised = self.recognised or line.startswith((b"# HELP ", b"# TYPE ", b"# EOF"))
            return False
        name = _name(line)
        if name in self._wanted:
            return True
        if name in self._others:
            self.recognised = True
        elif len(self._others) < MAX_OTHER_NAMES:
            if _parsed(line) is None:
                self.malformed += 1
            else:
                self.recognised = True
                if len(name) <= MAX_NAME_BYTES:
                    self._others.add(name)
        return False

    def _sample(self, line: bytes) -> Sample | None:
        series, brace, rest = line.rpartition(b"}")
        known = self._series.get(series)
        if known is None and brace:
            known = self._learn(series)
        self._shown += len(series)
        if known is not None and b"_" not in rest:
            try:
                return Sample(*known, float(rest))
            except ValueError:
                pass  # a timestamp, an exemplar, or no number at all: the real parser decides
        sample = _parsed(line)
        return sample if sample is not None and sample.name.encode() in self._wanted else None

    def _learn(self, series: bytes) -> tuple[str, Labels] | None:
        """Remember `series`, which lacks its last brace, if a value is all that may follow it."""
        known = self._before.get(series)
        if known is not None:
            self._remembered += len(series)
            self._series[series] = known
            return known
        sample = _parsed(series + b"} 0", untimed=True)
        name = None if sample is None else self._wanted.get(sample.name.encode())
        if sample is None or name is None:
            return None
        self._remembered += len(series)
        shared = self._texts.setdefault
        known = name, Labels({shared(key, key): shared(value, value) for key, value in sample.labels.items()})
        self._series[series] = known
        return known


def parse_page(body: bytes | str) -> list[Sample]:
    """The samples of a whole page that are wanted; what is no sample is left out."""
    page = body.encode() if isinstance(body, str) else body
    return list(PageParser().parse(page[at : at + _CHUNK_BYTES] for at in range(0, len(page), _CHUNK_BYTES)))


def lines_by_chunk(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The lines of a page, as many at a time as end in a chunk; one beyond all measure becomes a byte of garbage."""
    rest = b""
    skipping = False
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        if not skipping:
            rest += first
        if others:
            last = others.pop()
            yield others if skipping else [rest, *others]
            rest, skipping = last, False
        if len(rest) > MAX_LINE_BYTES:
            yield [_OVERLONG]
            rest, skipping = b"", True
    yield [rest]


def _name(line: bytes) -> bytes:
    """The name of a sample, however it is spelled: `name{…} 1`, `name {…} 1`, `name 1`, or `{"name",…} 1`."""
    if line.startswith(b"{"):
        return line.split(b'"', 2)[1] if line.count(b'"') > 1 else line
    return line.split(b"{", 1)[0].split(None, 1)[0]


def as_float(value: float) -> float:
    """A value as a float; prometheus_client gives an integer, however long, as one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _parsed(line: bytes, *, untimed: bool = False) -> Sample | None:
    """What prometheus_client reads in one line, `None` if nothing, or with `untimed` if there is a timestamp."""
    try:
        for family in text_string_to_metric_families(line.decode()):
            for name, labels, value, timestamp, *_ in family.samples:
                return Sample(name, labels, as_float(value)) if timestamp is None or not untimed else None
    except (ValueError, IndexError, OverflowError):
        pass
    return None
