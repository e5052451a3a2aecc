"""Log lines: one a record, whoever wrote what stands in them."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from exporter import logs

HOSTILE = "a\nb\r\x1b[2J\x1b]0;owned\x07\u202e\u2028\x85\x00\x7f"
"""Ends lines, drives a terminal, turns the direction of what follows."""


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.getLogger("exporter").level
    yield io.StringIO()
    root.handlers[:], level, own = before
    root.setLevel(level)
    logging.getLogger("exporter").setLevel(own)


def _log(stream: io.StringIO, form: str) -> list[str]:
    logs.start("debug", form, stream)
    log = logging.getLogger("exporter.test")
    log.warning("model %s: %s", HOSTILE, "ü × 模")
    try:
        raise ValueError(HOSTILE + "\n2026-01-01 00:00:00,000 ERROR forged")
    except ValueError:
        log.exception("failed %s", HOSTILE)
    logging.getLogger("httpx").info("a library speaks")
    return stream.getvalue().splitlines()


def test_a_text_line_stays_one_line(stream: io.StringIO) -> None:
    """A hostile name is written out; a traceback is set in, so that nothing in it looks like a line of its own."""
    first, second, *traceback = _log(stream, "text")
    assert first.endswith(r"WARNING model a\nb\r\x1b[2J\x1b]0;owned\x07\u202e\u2028\x85\x00\x7f: ü × 模")
    assert " ERROR failed a" in second
    assert all(line.startswith("    ") for line in traceback)
    assert any("forged" in line for line in traceback)
    assert all(line.isprintable() for line in [first, second, *traceback])


def test_a_json_line_is_one_object(stream: io.StringIO) -> None:
    """Every line is JSON that gives the very text back, and holds nothing that a terminal would obey."""
    warning, failure = (json.loads(line) for line in _log(stream, "json"))
    assert warning["message"] == f"model {HOSTILE}: ü × 模"
    assert failure["level"] == "error"
    assert HOSTILE in failure["traceback"]
    assert all(line.isprintable() for line in stream.getvalue().split("\n"))
    assert "ü × 模" in stream.getvalue()
