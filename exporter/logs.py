"""Log lines, for people or for machines."""

import codecs
import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; a traceback becomes one field."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _written_out(json.dumps(line, ensure_ascii=False), lambda c: json.dumps(c)[1:-1])


class TextLines(logging.Formatter):
    """One line a record, and below it, set in, a traceback: what a hostile name may carry begins no line of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 – logging's own name
        """The line, with what is not printable escaped."""
        return _escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """The traceback, each line set in."""
        return "\n".join(f"    {_escaped(line)}" for line in super().formatException(ei).split("\n"))


def _escaped(line: str) -> str:
    return _written_out(line, lambda c: c.encode("unicode_escape").decode())


def _written_out(line: str, write: Callable[[str], str]) -> str:
    """The line, with `write` of every character that drives a terminal, turns a line or its direction."""
    return line if line.isprintable() else "".join(c if c.isprintable() else write(c) for c in line)


def start(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send this project's records to `stream` (standard error) in the chosen form; other libraries' from warning on."""
    codecs.lookup("unicode_escape")  # it lies in a file, which cannot be opened once there are no descriptors
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("exporter").setLevel(level.upper())
