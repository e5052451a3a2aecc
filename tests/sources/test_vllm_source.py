"""One server, read for real over loopback."""

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from exporter.errors import SourceError
from exporter.sources.vllm import Access, VllmSource
from tests.support.expositions import PAGES, TWO_ENGINES, exposition, gauge, many_engines
from tests.support.pages import (
    Behaviour,
    PageServer,
    answer,
    chunked,
    gzipped,
    in_turn,
    status,
    until_close,
)

PAGE = exposition(TWO_ENGINES)
MODELS = exposition("vllm-0.32-v1-models.json")


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer(answer(PAGE)) as server:
        yield server


@pytest.fixture
def source(server: PageServer) -> Iterator[VllmSource]:
    source = VllmSource(server.url, Access(timeout_seconds=5))
    yield source
    source.close()


@pytest.mark.parametrize("name", PAGES)
def test_reads_real_pages(server: PageServer, source: VllmSource, name: str) -> None:
    """A recorded page over HTTP gives its engines, its size, and the names under which it told."""
    text = exposition(name)
    server.behaviour = answer(text)
    reading = source.read()
    several_engines = "two-engines" in name or "dp2" in name
    assert {engine.engine for engine in reading.engines} == ({"0", "1"} if several_engines else {"0"})
    assert reading.size_bytes == len(text.encode())
    assert reading.malformed_lines == 0
    assert 0 < reading.duration_seconds < 5
    assert {engine.time for engine in reading.engines} == {reading.time}
    assert reading.names["preemptions"] == "vllm:num_preemptions_total"
    assert (reading.process_start_time is None) is ("dp2" in name or "api-servers" in name)


def test_one_get_a_reading_over_one_connection(server: PageServer, source: VllmSource) -> None:
    """Five readings are five GETs of /metrics over a single connection."""
    for _ in range(5):
        source.read()
    assert [(request.method, request.path) for request in server.requests] == [("GET", "/metrics")] * 5
    assert server.connections == 1


def test_asks_for_the_plain_text_form_uncompressed(server: PageServer, source: VllmSource) -> None:
    """What is asked for is what is cheapest to make and to read; no cookie and no key is sent unasked."""
    server.behaviour = answer(PAGE, headers={"Set-Cookie": "session=1; Path=/"})
    source.read()
    source.read()
    headers = server.requests[-1].headers
    assert headers["accept-encoding"] == "identity"
    assert headers["accept"].startswith("text/plain;version=0.0.4")
    assert "openmetrics" not in headers["accept"]
    assert headers["user-agent"].startswith("vllm-headroom/")
    assert "cookie" not in headers
    assert "authorization" not in headers


@pytest.mark.parametrize(
    "behaviour",
    [answer(PAGE), chunked(PAGE), chunked(PAGE, chunk_bytes=11), until_close(PAGE), gzipped(PAGE)],
    ids=["length", "chunked", "tiny chunks", "until close", "gzip unasked"],
)
def test_however_a_body_is_framed_it_is_the_same_page(
    server: PageServer, source: VllmSource, behaviour: Behaviour
) -> None:
    """Length, chunks, end of connection, compression: the engines are the same."""
    expected = source.read()
    server.behaviour = behaviour
    reading = source.read()
    assert [e.names for e in reading.engines] == [e.names for e in expected.engines]
    assert [e.kv_usage for e in reading.engines] == [0.42, 0.8200000000000001]
    assert reading.size_bytes == len(PAGE)


def test_a_root_path_stands_before_every_request(server: PageServer) -> None:
    """A base URL with a path, with or without a slash at its end, is asked below that path."""
    server.routes["/llm/v1/models"] = answer(MODELS, content_type="application/json")
    for base in ("/llm", "/llm/"):
        source = VllmSource(server.url + base)
        source.read()
        source.read_models()
        source.close()
    assert {request.path for request in server.requests} == {"/llm/metrics", "/llm/v1/models"}


def test_a_connection_that_was_closed_meanwhile_is_opened_anew(server: PageServer, source: VllmSource) -> None:
    """A server that dropped the kept connection, as one that restarts does, is read all the same."""
    source.read()
    server.drop_connections()
    assert source.read().engines
    assert server.connections == 2


def test_a_server_that_comes_back_is_read_at_once(server: PageServer, source: VllmSource) -> None:
    """After a fault, the next reading is good: nothing has to be restarted."""
    server.behaviour = in_turn(status(500), answer(PAGE))
    with pytest.raises(SourceError):
        source.read()
    assert len(source.read().engines) == 2


def test_a_server_that_was_gone_is_read_when_it_is_there() -> None:
    """Refused while nothing listens, read as soon as something does on the same port."""
    with PageServer(answer(PAGE)) as gone:
        port = gone.port
    source = VllmSource(f"http://127.0.0.1:{port}", Access(timeout_seconds=2))
    with pytest.raises(SourceError) as error:
        source.read()
    assert error.value.reason == "refused"
    with PageServer(answer(PAGE), port=port):
        assert len(source.read().engines) == 2
    source.close()


def test_engines_come_and_go_with_the_page(server: PageServer, source: VllmSource) -> None:
    """An engine that vanishes is not in the next reading, one that appears is, and a reset counter is as it stands."""
    server.behaviour = in_turn(
        answer(gauge("num_preemptions_total", 7) + gauge("num_preemptions_total", 9, engine="1")),
        answer(gauge("num_preemptions_total", 0)),
        answer(gauge("num_preemptions_total", 1) + gauge("num_preemptions_total", 2, engine="5")),
    )
    seen = [[(e.engine, e.preemptions) for e in source.read().engines] for _ in range(3)]
    assert seen == [[("0", 7), ("1", 9)], [("0", 0)], [("0", 1), ("5", 2)]]


def test_workers_behind_one_address_differ_by_their_start(server: PageServer, source: VllmSource) -> None:
    """Counters that saw between workers come with the start of the process each belongs to (geolens#1240)."""
    pages = [
        answer(gauge("num_preemptions_total", count) + f"process_start_time_seconds {start}\n")
        for count, start in ((19, 100.5), (11, 200.5), (11, 200.5), (19, 100.5), (11, 200.5))
    ]
    server.behaviour = in_turn(*pages)
    readings = [source.read() for _ in range(5)]
    assert [reading.engines[0].preemptions for reading in readings] == [19, 11, 11, 19, 11]
    assert [reading.process_start_time for reading in readings] == [100.5, 200.5, 200.5, 100.5, 200.5]


def test_prefixes_may_be_chosen(server: PageServer) -> None:
    """A page whose names begin otherwise is read with the prefix it has, and is empty without."""
    server.behaviour = answer(PAGE.replace("vllm:", "edge_vllm:"))
    chosen, usual = VllmSource(server.url, prefixes=("edge_vllm:",)), VllmSource(server.url)
    assert chosen.read().names["kv_usage"] == "edge_vllm:kv_cache_usage_perc"
    with pytest.raises(SourceError, match="no vLLM metrics"):
        usual.read()
    chosen.close()
    usual.close()


def test_the_page_is_named_by_its_first_engine(server: PageServer, source: VllmSource) -> None:
    """Where engines differ in their names, those of the first stand for the page, and the others add what it lacks."""
    old = gauge("gpu_cache_usage_perc", 0.1, engine="0")
    new = gauge("kv_cache_usage_perc", 0.2, engine="1") + gauge("num_requests_swapped", 0, engine="1")
    server.behaviour = answer(new + old)
    assert source.read().names == {"kv_usage": "vllm:gpu_cache_usage_perc", "swapped": "vllm:num_requests_swapped"}


def test_malformed_lines_are_counted_and_cost_nothing_else(server: PageServer, source: VllmSource) -> None:
    """Garbage inside a good page leaves its engines whole."""
    lines = PAGE.splitlines(keepends=True)
    lines[300:300] = ["\x01garbage\n", "vllm:num_preemptions_total{} x\n"]
    server.behaviour = answer("".join(lines))
    reading = source.read()
    assert reading.malformed_lines == 2
    assert [e.running for e in reading.engines] == [12, 13]


def test_a_page_of_64_engines_is_within_the_limits(server: PageServer, source: VllmSource) -> None:
    """The largest page that is expected passes under the default limit."""
    server.behaviour = answer(many_engines(64))
    reading = source.read()
    assert len(reading.engines) == 64
    assert reading.size_bytes > 2 * 1024 * 1024


def test_proxies_of_the_environment_are_not_used(
    server: PageServer, source: VllmSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is fetched directly whatever HTTP_PROXY says."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    direct = VllmSource(server.url)
    assert direct.read().engines
    direct.close()


def test_names_are_looked_up() -> None:
    """A host name works where an address does."""
    with PageServer(answer(PAGE)) as server:
        source = VllmSource(f"http://localhost:{server.port}")
        assert source.read().engines
        source.close()


def test_ipv6_addresses_work() -> None:
    """A literal IPv6 address in the URL is connected to as it stands."""
    seen: list[str] = []

    def behaviour(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.host)
        return httpx.Response(200, stream=httpx.ByteStream(PAGE.encode()))

    source = VllmSource("http://[::1]:8000", transport=httpx.MockTransport(behaviour))
    assert source.read().engines
    assert seen == ["::1"]


def test_closing_gives_the_connection_back(server: PageServer) -> None:
    """After `close` the server sees its client gone."""
    source = VllmSource(server.url)
    source.read()
    threads = [t for t in threading.enumerate() if t.name.startswith("serve-")]
    source.close()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)


def test_time_is_the_clocks_when_the_server_answered(server: PageServer) -> None:
    """`time` and `duration_seconds` come from the clock that was given."""
    ticks = iter(range(100))
    source = VllmSource(server.url, clock=lambda: float(next(ticks)))
    reading = source.read()
    assert (reading.time, reading.duration_seconds) == (1.0, 2.0)
    source.close()


def test_nothing_is_sent_before_the_first_reading() -> None:
    """Making a source connects to nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        VllmSource(f"http://127.0.0.1:{listener.getsockname()[1]}").close()
        with pytest.raises(TimeoutError):
            listener.accept()
