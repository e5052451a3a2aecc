"""The text of a metrics page, of which only the wanted lines are parsed.

A page of vLLM has some four hundred and fifty lines an engine, of which a sixth is wanted, and nothing but values
changes between most readings: a series is parsed once, by prometheus_client, and known again by its text, which is
first looked for where it stood on the page before.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from sys import intern
from typing import NamedTuple

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
MAX_LAYOUT_LINES = 65_536
"""Of a page, whose places are remembered: more than a page of vLLM's that is as large as is read."""
_CHUNK_BYTES = 65_536
_OVERLONG = b"\0"
_COMMENTS = (b"# HELP ", b"# TYPE ", b"# EOF")


class _Series(NamedTuple):
    """A wanted line up to its value: its text, and what that means."""

    text: bytes
    name: str
    labels: Labels


_Known = bytes | _Series | None
"""What a line is known by: the beginning of one that is not wanted, a series, or nothing."""


class PageParser:
    """Reads pages of one server and remembers the series it has met, within bounds.

    After a page, `malformed` counts its lines that are no sample, each of which cost itself alone: of the wanted ones
    every one, of the others those whose name was never seen on a sample. `recognised` says whether there was at least
    one sample or comment of a metrics page, `process_start_time` when the process that wrote it began.
    """

    def __init__(self, prefixes: tuple[str, ...] = PREFIXES) -> None:
        """Wanted is what vLLM has ever shown of what we read, under any of `prefixes`."""
        self._wanted = {name.encode(): intern(name) for name in (*places(prefixes), PROCESS_START)}
        self._others: dict[bytes, tuple[bytes, bytes]] = {}
        """Names that are not wanted, each with a brace and with a space behind it."""
        self._series: dict[bytes, _Series] = {}
        self._layout: list[_Known] = []
        """What the last page's lines are known by: from page to page hardly one of them moves."""
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
        if self._remembered > self._shown + SPARE_BYTES or self._pages % SPARE_PAGES == 0:
            self._series = {known.text: known for known in self._layout if type(known) is _Series}
            self._remembered, self._texts = sum(map(len, self._series)), {}
        self._shown = 0
        layout: list[_Known] = []
        before = chain(self._layout, repeat(None))
        for lines in lines_by_chunk(chunks):
            seen: list[_Known] = []
            for line, known in zip(lines, before, strict=False):
                if type(known) is bytes and line.startswith(known):
                    seen.append(known)
                    continue
                sample = _sample(known, line) if type(known) is _Series and line.startswith(known.text) else None
                if sample is None:
                    known, sample = self._look(line)
                seen.append(known)
                if sample is None:
                    continue
                if type(known) is _Series:
                    self._shown += len(known.text)
                if sample.name == PROCESS_START:
                    self.process_start_time = sample.value if 0 < sample.value < math.inf else None
                else:
                    yield sample
            self.recognised = self.recognised or any(seen)
            if len(layout) + len(seen) <= MAX_LAYOUT_LINES:
                layout += seen
        self._layout = layout

    def _look(self, line: bytes) -> tuple[_Known, Sample | None]:
        """What a line that is not as on the page before is known by, and its sample if it is a wanted one."""
        name = line[: line.find(b"{")]
        if name in self._others:
            return self._others[name][0], None
        if name not in self._wanted:
            text = line.strip()
            if not text or text.startswith(b"#"):
                return next((comment for comment in _COMMENTS if text.startswith(comment)), None), None
            name = _name(text)
            if name not in self._wanted:
                return self._other(name, text), None
        text, brace, _ = line.rpartition(b"}")
        known = self._series.get(text + brace) or (self._learn(text + brace) if brace else None)
        sample = None if known is None else _sample(known, line)
        if sample is None:  # a timestamp, an exemplar, or no number at all: the real parser decides
            known, sample = None, _parsed(line)
        if sample is None or sample.name.encode() not in self._wanted:
            self.malformed += 1
            return None, None
        self.recognised = True
        return known, sample

    def _other(self, name: bytes, line: bytes) -> bytes | None:
        """Learn the name of a line that is not wanted, or count the line if it is no sample."""
        if name not in self._others:
            if len(self._others) >= MAX_OTHER_NAMES:
                return None
            if _parsed(line) is None:
                self.malformed += 1
                return None
            if len(name) <= MAX_NAME_BYTES:
                self._others[name] = name + b"{", name + b" "
        self.recognised = True
        return self._others[name][1] if name in self._others else None

    def _learn(self, text: bytes) -> _Series | None:
        """Remember a series if a value is all that may follow it."""
        sample = _parsed(text + b" 0", untimed=True)
        name = None if sample is None else self._wanted.get(sample.name.encode())
        if sample is None or name is None:
            return None
        self._remembered += len(text)
        shared = self._texts.setdefault
        labels = Labels({shared(key, key): shared(value, value) for key, value in sample.labels.items()})
        known = self._series[text] = _Series(text, name, labels)
        return known


def _sample(known: _Series, line: bytes) -> Sample | None:
    """The sample of a line that begins with a known series; `None` if anything but a value follows."""
    text, name, labels = known
    value = line[len(text) :]
    if b"_" in value:  # Python's, not Prometheus's
        return None
    try:
        return Sample(name, labels, float(value))
    except ValueError:
        return None


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
