import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from exporter.errors import SourceError
from exporter.routes import Routes
from exporter.server import HttpServer, Request, Response
from exporter.settings import load
from exporter.top.feeds import AnyFeed, Reader, once
from exporter.web.status import Status
from tests.web.scenes import SCENES, Scene

PAGE = """\
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1001"} 1.0
"""


def vllm(request: Request) -> Response:
    """A server with vLLM's page and nothing else that is asked for here."""
    if request.path == "/metrics":
        return Response(200, "text/plain; version=0.0.4; charset=utf-8", PAGE.encode())
    return Response(404, "application/json", b'{"detail":"Not Found"}')


@contextmanager
def exporting(made: Scene) -> Iterator[str]:
    routes = Routes(lambda: made.snapshot, made.history, lambda: made.snapshot.time + 0.3, 8.0)
    with HttpServer("127.0.0.1", 0, routes) as server:
        yield server.url


@contextmanager
def feed(url: str) -> Iterator[AnyFeed]:
    made = AnyFeed(url, load({"vllm_url": url}))
    try:
        yield made
    finally:
        made.close()


def test_an_exporter_is_asked_for_its_document() -> None:
    """Beside an exporter, its own status is shown, with the window asked for."""
    with exporting(SCENES["predicted"]()) as url, feed(url) as source:
        status = source.read(60)
    assert status.verdict.state == "predicted"
    assert status.engines[0].history.window_seconds == 60


def test_a_vllm_server_is_read_right_here() -> None:
    """Without an exporter, vLLM's own page is read and assessed, and its past begins to grow."""
    with HttpServer("127.0.0.1", 0, vllm) as server, feed(server.url) as source:
        status = source.read(900)
        again = source.read(900)
    assert status.engines[0].pool.usable_blocks == 1000
    assert again.engines[0].pool.used_ratio == 0.5
    assert again.engines[0].history.used_ratio == (0.5,)
    assert {health.source for health in again.sources if health.up} >= {"vllm"}


def test_a_server_that_is_not_there_is_said_to_be() -> None:
    """Nothing is claimed of a server that does not answer, and it may come later."""
    with HttpServer("127.0.0.1", 0, vllm) as server:
        url = server.url
    with feed(url) as source:
        seen = once("gone", source, 900)
        assert seen.status is None
        assert "refused the connection" in seen.fault
        with exporting(SCENES["ok"]()) as other, feed(other) as found:
            assert once("here", found, 900).status is not None


def test_a_document_of_another_version_is_refused() -> None:
    """A document that this version cannot read is no traceback but a sentence with the way out."""

    def other(_: Request) -> Response:
        return Response(200, "application/json", b'{"version":2}')

    with (
        HttpServer("127.0.0.1", 0, other) as server,
        feed(server.url) as source,
        pytest.raises(SourceError, match="of another version; use its own vllm-headroom"),
    ):
        source.read(900)


def test_a_page_of_something_else_is_not_taken_for_an_exporter() -> None:
    """A web server that answers everything with HTML is neither: the fault says what was looked for."""

    def html(_: Request) -> Response:
        return Response(200, "text/html", b"<h1>hello</h1>")

    with HttpServer("127.0.0.1", 0, html) as server, feed(server.url) as source:
        status = source.read(900)
    assert status.verdict.state == "unknown"
    assert not any(health.up for health in status.sources if health.source == "vllm")


class Slow:
    """A feed that counts how often, and with which windows, it was read."""

    def __init__(self, status: Status) -> None:
        self.windows: list[int] = []
        self.closed = False
        self._status = status

    def read(self, window: int) -> Status:
        self.windows.append(window)
        return replace(self._status, age_seconds=float(len(self.windows)))

    def close(self) -> None:
        self.closed = True


def test_a_reader_follows_the_window_and_stops() -> None:
    """A new window is read at once, not at the next turn, and closing the reader lets go of its feed."""
    with exporting(SCENES["ok"]()) as url, feed(url) as source:
        slow = Slow(source.read(900))
    reader = Reader("http://127.0.0.1:1", slow, interval=30.0)
    assert reader.seen.status is None
    reader.start()
    until = time.monotonic() + 20
    while reader.seen.status is None and time.monotonic() < until:
        time.sleep(0.01)
    reader.show(60)
    while slow.windows[-1] != 60 and time.monotonic() < until:
        time.sleep(0.01)
    reader.close()
    while not slow.closed and time.monotonic() < until:
        time.sleep(0.01)
    assert slow.windows == [900, 60]
    assert slow.closed
