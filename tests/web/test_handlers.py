import base64
import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from exporter.history import History
from exporter.routes import Routes
from exporter.server import HttpServer, Request
from exporter.snapshot import Snapshot
from exporter.web.handlers import StatusPages
from exporter.web.status import Status
from tests.web.scenes import SCENES, Scene


class Box:
    """What the routes read: the latest snapshot, and a clock that stands still."""

    def __init__(self, made: Scene | None) -> None:
        self.snapshot: Snapshot | None = made.snapshot if made else None
        self.history = made.history if made else History()
        self.now = made.snapshot.time + 0.3 if made else 0.0


@contextmanager
def serving(made: Scene | None) -> Iterator[tuple[Box, httpx.Client]]:
    box = Box(made)
    routes = Routes(lambda: box.snapshot, box.history, lambda: box.now, 8.0)
    with HttpServer("127.0.0.1", 0, routes) as server, httpx.Client(base_url=server.url) as client:
        yield box, client


@pytest.mark.parametrize("name", SCENES)
def test_the_document_follows_its_schema(name: str) -> None:
    """Every state of the world is a document of the published schema, and reads back as the same value."""
    adapter = TypeAdapter(Status)
    schema = adapter.json_schema(mode="serialization")
    with serving(SCENES[name]()) as (_, client):
        answer = client.get("/api/v1/status")
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    Draft202012Validator(schema).validate(document)
    assert adapter.dump_python(adapter.validate_python(document), mode="json") == document
    assert document["version"] == 1


def test_the_document_has_no_number_that_json_has_not() -> None:
    """Nothing in it is NaN or infinite."""
    with serving(SCENES["hostile"]()) as (_, client):

        def refuse(constant: str) -> None:
            raise AssertionError(constant)

        json.loads(client.get("/api/v1/status").text, parse_constant=refuse)


@pytest.mark.parametrize("window", [60, 300, 900])
def test_the_window_of_the_past_can_be_chosen(window: int) -> None:
    """`window` sets how far the history goes back, in both forms."""
    with serving(SCENES["ok"]()) as (_, client):
        past = client.get(f"/api/v1/status?window={window}").json()["engines"][0]["history"]
        assert past["window_seconds"] == window
        assert window - 3 <= past["seconds_ago"][0] <= window
        assert len(past["seconds_ago"]) <= 301
        assert 'aria-current="true"' in client.get(f"/?window={window}").text


@pytest.mark.parametrize("path", ["/", "/api/v1/status"])
def test_another_window_is_refused(path: str) -> None:
    """A window that is not offered is answered with those that are."""
    with serving(SCENES["ok"]()) as (_, client):
        answer = client.get(f"{path}?window=1e9")
    assert (answer.status_code, answer.text) == (400, "window must be one of 60, 300, 900 (seconds)\n")


def test_before_the_first_tick_nothing_is_claimed() -> None:
    """Until something has been read the page says so and the document is unavailable."""
    with serving(None) as (_, client):
        assert "nothing has been read yet" in client.get("/").text
        answer = client.get("/api/v1/status")
    assert (answer.status_code, answer.json()) == (503, {"error": "nothing has been read yet"})


def test_a_tick_is_drawn_once_however_many_look() -> None:
    """Two requests within one tick get the same bytes; the next tick gets its own."""
    made = SCENES["ok"]()
    with serving(made) as (box, client):
        first, second = client.get("/").content, client.get("/").content
        assert first == second
        box.snapshot = replace(made.snapshot, wall_time=made.snapshot.wall_time + 1)
        assert client.get("/").content != first


@pytest.mark.parametrize(("cost", "period"), [(0.001, 2), (0.012, 4), (1.0, 15)])
def test_a_page_that_costs_more_is_asked_for_less_often(cost: float, period: int) -> None:
    """An open page keeps to its share of a core: what takes 12 ms to make is asked for every 4 s, at most every 15."""
    made = SCENES["ok"]()
    spent = itertools.count(step=cost)
    pages = StatusPages(lambda: made.snapshot, made.history, lambda: made.snapshot.time, 8.0, lambda: next(spent))
    pages.page(Request("GET", "/", "", {}))
    assert f'data-period="{period}"' in pages.page(Request("GET", "/", "window=300", {})).body.decode()


def test_a_monitor_that_is_stuck_shows_it() -> None:
    """When no tick comes any more, page and document stop answering with the old state."""
    with serving(SCENES["ok"]()) as (box, client):
        assert client.get("/api/v1/status").json()["stale"] is False
        box.now += 60
        assert client.get("/api/v1/status").json()["verdict"]["state"] == "unknown"
        assert "the last reading is 60 s old" in client.get("/").text.replace("\u00a0", " ")


def test_only_our_own_style_and_script_may_run() -> None:
    """The policy allows the page's own style and script by their hashes and nothing from elsewhere."""
    with serving(SCENES["hostile"]()) as (_, client):
        answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    for kind in ("style", "script"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", answer.text)


def test_a_hostile_name_stays_text() -> None:
    """A model name full of markup adds no element to the page."""
    with serving(SCENES["hostile"]()) as (_, client):
        text = client.get("/").text
    assert text.count("<script") == 1
    assert "<img" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_head_and_other_methods() -> None:
    """HEAD has the headers of GET and no body."""
    with serving(SCENES["ok"]()) as (_, client):
        answer = client.head("/")
    assert (answer.status_code, answer.content) == (200, b"")
    assert "content-security-policy" in answer.headers


def test_links_work_behind_a_proxy_path() -> None:
    """Every link is relative, so that the page works under any prefix."""
    with serving(SCENES["eight-engines"]()) as (_, client):
        links = re.findall(r'href="([^"]*)"', client.get("/").text)
    assert links
    assert not [link for link in links if link.startswith("/") or "://" in link.removeprefix("data:")[:12]]
