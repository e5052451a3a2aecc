"""Recorded scrapes, read and written.

A recording is gzipped JSON lines: `{"meta": {...}}` first, then `{"t": seconds, "s": {series: value}}`
with only the series that changed since the line before, and optionally `{"events": [[t, preempted], ...]}`
last: the truth, which no forecast may see.
"""

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from exporter.errors import InputError
from exporter.reading import EngineReading
from exporter.sources.engines import assemble
from exporter.sources.samples import Labels

Sample = tuple[str, Mapping[str, str], float]

MAX_LINE_CHARACTERS = 64 * 2**20
"""A page of 64 engines, every series of it changed, has some five million."""

_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Event:
    """`count` requests were preempted at `time`, by the engine's own account."""

    time: float
    count: int


def parse_series(series: str) -> tuple[str, dict[str, str]]:
    """`name{label="value",…}` → the name and its labels."""
    name, brace, rest = series.partition("{")
    if not brace:
        return name, {}
    unescape = {"n": "\n"}
    return name, {k: _ESCAPE.sub(lambda m: unescape.get(m[1], m[1]), v) for k, v in _LABEL.findall(rest)}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(iter(partial(lines.readline, MAX_LINE_CHARACTERS + 1), ""), 1):
                if len(line) > MAX_LINE_CHARACTERS:
                    raise InputError(f"{path}: line {number} is endless; is this a recording?")
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise InputError(f"{path}: line {number} is not a JSON object; is this a recording?")
                yield record
    except FileNotFoundError:
        raise InputError(f"{path}: no such recording") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory; name one recording in it") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read after line {number}: {error}") from None
    except (ValueError, RecursionError) as error:  # also for a number of thousands of digits
        why = error.msg if isinstance(error, json.JSONDecodeError) else "beyond what a reader of JSON takes"
        raise InputError(f"{path}: line {number} is not JSON ({why}); is this a recording?") from None


def _finite(value: Any) -> float:
    """A number that is one. Raises `ValueError`, or what `float` raises."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no time")
    return number


class Recording:
    """One recorded run of one server."""

    def __init__(self, path: Path) -> None:
        """Open lazily; nothing is read until asked."""
        self.path = path

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return self.path.name.removesuffix(".gz").removesuffix(".jsonl")

    def meta(self) -> dict[str, Any]:
        """What the first line says of the run; empty when the file starts with samples."""
        first = next(_lines(self.path), {})
        meta = first.get("meta", {})
        return meta if isinstance(meta, dict) else {}

    def readings(self) -> Iterator[tuple[float, tuple[EngineReading, ...]]]:
        """Each recorded scrape as (seconds, one reading per engine), through the code that reads live pages."""
        state: dict[str, float] = {}
        names: dict[str, tuple[str, Labels]] = {}
        for record in _lines(self.path):
            if "s" not in record:
                continue
            try:
                time = _finite(record["t"])
                for series, value in record["s"].items():
                    state[series] = float(value)
                    if series not in names:
                        name, labels = parse_series(series)
                        names[series] = name, Labels(labels)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                raise InputError(f"{self.path}: a sample line cannot be read: {error!r}") from None
            yield time, assemble(((*names[series], value) for series, value in state.items()), time)

    def events(self) -> tuple[Event, ...]:
        """The true preemptions, if the recording tells them."""
        for record in _lines(self.path):
            if "events" in record:
                try:
                    return tuple(Event(_finite(t), int(n)) for t, n in record["events"])
                except (TypeError, ValueError, OverflowError) as error:
                    raise InputError(f"{self.path}: its events cannot be read: {error!r}") from None
        return ()
