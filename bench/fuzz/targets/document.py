"""The status document of an exporter elsewhere, as `top` reads and draws it."""

import functools
import io
import json
from collections.abc import Iterator

import httpx
from pydantic import TypeAdapter
from rich.console import Console

from bench.fuzz.mutation import json_mutator
from bench.fuzz.target import Target
from exporter.sources.endpoint import Access, Endpoint
from exporter.top.board import Board
from exporter.top.feeds import ExporterFeed, once
from exporter.top.plain import plain
from exporter.top.view import View
from exporter.web.status import Status
from exporter.web.telling import tell
from tests.web.scenes import SCENES


@functools.cache
def feed() -> ExporterFeed:
    """One for the whole process; what it reads takes long to prepare."""
    return ExporterFeed("http://exporter:9488", Access())


def check(data: bytes) -> None:
    """It is drawn, as a report and on a screen, or a sentence says why not; no line is for the terminal to obey."""
    headers = {"content-type": "application/json", "content-length": str(len(data))}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=httpx.ByteStream(data)))
    source = feed()
    source._endpoint = Endpoint("exporter", "http://exporter:9488", Access(), transport)
    seen = [once("exporter:9488", source, 300)]
    report = plain(seen)
    console = Console(file=io.StringIO(), width=80, height=24, color_system=None)
    console.print(View(console).draw(seen, Board()))
    assert isinstance(console.file, io.StringIO)
    for text in (report, console.file.getvalue()):
        assert len(text) < 500_000
        assert all(line.isprintable() for line in text.split("\n")), f"what no terminal should be sent: {text!r}"


def seeds() -> list[bytes]:
    """The document of every scene that the status page is tested with."""
    adapter = TypeAdapter(Status)
    found = []
    for name in ("predicted", "exhausted", "asleep", "unknown"):
        made = SCENES[name]()
        found.append(adapter.dump_json(tell(made.snapshot, made.history, made.snapshot.time + 0.3, 8.0, 60)))
    return found


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for inner in value.values():
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


KEYS = tuple(sorted({key for data in seeds() for key in _keys(json.loads(data))}))
TARGET = Target(
    name="document",
    check=check,
    seeds=seeds,
    tokens=(*(f'"{key}":'.encode() for key in KEYS), b"NaN", b"1e400", b"null", b"-1"),
    mutate=json_mutator(KEYS),
    allowed=(),
    longest=32_768,
)
