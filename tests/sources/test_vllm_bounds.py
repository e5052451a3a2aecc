"""No server takes more of this process than it may: not its time, not its memory."""

import contextlib
import resource
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.sources import deadline
from exporter.sources.deadline import DeadlineTransport
from exporter.sources.vllm import MAX_SAMPLES, Access, VllmSource
from tests.support.expositions import TWO_ENGINES, exposition
from tests.support.pages import (
    Behaviour,
    PageServer,
    answer,
    endless,
    gzip_bomb,
    hang,
    silence,
    slow,
    trickle,
)
from tests.support.sources import LIMIT, fault_of, source_of

PAGE = exposition(TWO_ENGINES)
TIMEOUT = 0.3


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer(answer(PAGE)) as server:
        yield server


@pytest.mark.parametrize(
    "behaviour",
    [
        silence(),
        hang(),
        hang(PAGE, 40_000),
        trickle(PAGE),
        trickle(PAGE, headers_too=True),
        slow(answer(PAGE), 5 * TIMEOUT),
    ],
    ids=["silent", "hangs before", "hangs mid-body", "drips its body", "drips its headers", "slow"],
)
def test_a_reading_is_over_in_time(server: PageServer, behaviour: Behaviour) -> None:
    """However a server delays, the reading ends by its timeout, which holds for the whole of it."""
    server.behaviour = behaviour
    source = source_of(server.url, timeout_seconds=TIMEOUT)
    for _ in range(2):
        begun = time.monotonic()
        assert fault_of(source).reason == "timeout"
        # The margin is for a busy machine; the drip alone would last for minutes.
        assert TIMEOUT * 0.9 < time.monotonic() - begun < TIMEOUT + 2
    source.close()


def test_a_host_without_a_name() -> None:
    """A name that cannot be looked up, or cannot be a name, is a fault of the name service."""
    assert fault_of(source_of("http://no-such-host.invalid:8000")).reason == "dns"


def test_a_name_service_that_hangs_holds_nothing_up() -> None:
    """A lookup that does not end is given up in time, and is not started a second time while it lasts."""
    release = threading.Event()
    lookups = []

    def resolve(host: str, port: int) -> list[str]:
        lookups.append(host)
        release.wait(10)
        return ["127.0.0.1"]

    with PageServer(answer(PAGE)) as server:
        transport = DeadlineTransport(TIMEOUT, resolve=resolve)
        source = VllmSource(f"http://vllm.example:{server.port}", transport=transport)
        for _ in range(2):
            begun = time.monotonic()
            assert fault_of(source).reason == "timeout"
            assert time.monotonic() - begun < TIMEOUT + 2
        assert lookups == ["vllm.example"]
        release.set()
        assert source.read().engines
        source.close()


def test_an_address_that_refuses_leaves_the_next_one() -> None:
    """Of several addresses of a name, the first that takes the connection is used."""
    with PageServer(answer(PAGE)) as server:
        transport = DeadlineTransport(5, resolve=lambda host, port: ["127.0.0.9", "127.0.0.1"])
        source = VllmSource(f"http://vllm.example:{server.port}", transport=transport)
        assert source.read().engines
        source.close()


def test_a_name_without_addresses_is_unreachable() -> None:
    """An empty answer of the name service is a fault like another."""
    source = VllmSource("http://vllm.example:1", transport=DeadlineTransport(5, resolve=lambda host, port: []))
    assert fault_of(source).reason == "unreachable"


def test_too_many_open_files(server: PageServer) -> None:
    """A process without a file descriptor left says so, and reads again when there is one."""
    source = source_of(server.url)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
    held: list[socket.socket] = []
    reasons: list[str] = []
    try:
        # A connection of an earlier test that closes just now gives a descriptor back: then they are taken again.
        for _ in range(10):
            with contextlib.suppress(OSError):
                while True:
                    held.append(socket.socket())
            with contextlib.suppress(pytest.fail.Exception):
                reasons.append(fault_of(source).reason)
            if "no_descriptors" in reasons:
                break
    finally:
        for sock in held:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert reasons[-1] == "no_descriptors"
    assert source.read().engines
    source.close()


@pytest.mark.parametrize("behaviour", [endless(100 * 1024 * 1024), gzip_bomb(100 * 1024 * 1024)], ids=["huge", "bomb"])
def test_a_huge_page_costs_no_memory(server: PageServer, behaviour: Behaviour) -> None:
    """100 MB, plain or out of a gzip bomb, are cut off at the limit; the limit is all the memory they take."""
    server.behaviour = behaviour
    source = source_of(server.url)
    # The server and what earlier tests left running share this process: the least of a few is what reading takes.
    taken = min(_taken_by(source) for _ in range(4))
    assert taken < 4 * LIMIT
    source.close()


def _taken_by(source: VllmSource) -> int:
    """Bytes that one refused reading takes at its peak."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        assert fault_of(source).reason == "too_large"
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_the_kept_connection_is_dropped_before_vllm_drops_it() -> None:
    """VLLM's server closes a connection after 5 idle seconds; a request must not meet that moment."""
    assert deadline._KEEPALIVE_SECONDS < 5


@pytest.mark.parametrize("label", ["engine", "pid"])
def test_a_page_of_endless_series_is_not_read(server: PageServer, label: str) -> None:
    """A page that invents engines, or front-ends of one engine, without end is refused whole, and forgotten."""
    lines = [f'vllm:num_requests_waiting_by_reason{{{label}="{number}"}} 1\n' for number in range(MAX_SAMPLES + 1)]
    source = VllmSource(server.url, Access(timeout_seconds=60.0))
    server.behaviour = answer("".join(lines))
    error = fault_of(source)
    assert error.reason == "too_large"
    assert f"shows more than {MAX_SAMPLES} series of vLLM" in str(error)
    server.behaviour = answer(PAGE)
    assert len(source.read().engines) == 2
    source.close()
