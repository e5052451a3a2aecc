"""Our own HTTP server: what it serves, what it refuses and how it ends."""

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from exporter.errors import UsageError
from exporter.server import HttpServer, Request, Response


def handle(request: Request) -> Response:
    if request.path == "/boom":
        raise RuntimeError("a page that fails")
    return Response(200, "text/plain", f"{request.path}|{request.query}".encode(), {"Vary": "Accept"})


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer("127.0.0.1", 0, handle, idle_seconds=0.5) as running:
        yield running


@pytest.fixture
def client(server: HttpServer) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    yield connection
    connection.close()


def test_a_page_is_served_with_its_query(client: http.client.HTTPConnection) -> None:
    """Path and query reach the handler; its headers reach the client."""
    client.request("GET", "/a/b?c=d")
    answer = client.getresponse()
    assert (answer.status, answer.read(), answer.getheader("Vary")) == (200, b"/a/b|c=d", "Accept")


def test_a_connection_is_kept_alive(client: http.client.HTTPConnection) -> None:
    """Many requests share one connection."""
    ports = set()
    for _ in range(3):
        client.request("GET", "/")
        client.getresponse().read()
        ports.add(client.sock.getsockname()[1])
    assert len(ports) == 1


def test_head_has_the_length_and_no_body(client: http.client.HTTPConnection) -> None:
    """HEAD tells the length GET would have, and sends nothing after the head."""
    client.request("HEAD", "/abc")
    answer = client.getresponse()
    assert (answer.status, answer.getheader("Content-Length"), answer.read()) == (200, "5", b"")


def test_other_methods_are_refused(client: http.client.HTTPConnection) -> None:
    """POST is answered 405 with what is allowed, its body read and dropped."""
    client.request("POST", "/", body=b"x" * 1000)
    answer = client.getresponse()
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")
    answer.read()
    client.request("GET", "/still")
    assert client.getresponse().read() == b"/still|"


def test_a_failing_page_is_500_and_the_server_goes_on(client: http.client.HTTPConnection) -> None:
    """One page that raises gives 500 without a traceback; the next page is served."""
    client.request("GET", "/boom")
    answer = client.getresponse()
    body = answer.read()
    assert answer.status == 500
    assert b"Traceback" not in body
    client.request("GET", "/next")
    assert client.getresponse().status == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"garbage\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40000 + b"\r\n\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"a" * 1000000, b"413"),
    ],
)
def test_a_request_out_of_bounds_is_refused(server: HttpServer, sent: bytes, status: bytes) -> None:
    """Garbage, a missing Host, a huge head and a huge body get a status and a closed connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        threading.Thread(target=lambda: _send(raw, sent), daemon=True).start()
        assert raw.recv(64).startswith(b"HTTP/1.1 " + status)


def _send(raw: socket.socket, data: bytes) -> None:
    try:
        raw.sendall(data)
    except OSError:
        return


def test_an_idle_connection_is_dropped(server: HttpServer) -> None:
    """A client that never ends its head is hung up on after the idle time."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.sendall(b"GET / HTT")
        assert raw.recv(64) == b""


def test_many_idle_connections_do_not_stop_a_page(server: HttpServer, client: http.client.HTTPConnection) -> None:
    """Two hundred clients that say nothing leave the server free for one that asks."""
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    try:
        client.request("GET", "/")
        assert client.getresponse().status == 200
    finally:
        for each in idle:
            each.close()


def test_a_taken_port_is_a_clear_error(server: HttpServer) -> None:
    """A second server on the port says what is wrong and what to do."""
    with pytest.raises(UsageError, match=rf"cannot listen on 127\.0\.0\.1:{server.port}.*--listen"):
        HttpServer("127.0.0.1", server.port, handle).start()


def test_closing_drops_open_connections_and_can_be_repeated() -> None:
    """Close ends within a second while a client holds a connection, and frees the port."""
    server = HttpServer("127.0.0.1", 0, handle)
    server.start()
    port = server.port
    with socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 200")
        started = time.monotonic()
        server.close()
        server.close()
        assert time.monotonic() - started < 5
        assert raw.recv(1) == b""
    with HttpServer("127.0.0.1", port, handle) as again:
        assert again.port == port


def test_an_ipv6_address_has_brackets_in_its_url() -> None:
    """The URL of a server on ::1 can be pasted into a browser."""
    with HttpServer("[::1]", 0, handle) as server:
        assert server.url == f"http://[::1]:{server.port}"


def test_a_server_that_was_never_started_can_be_closed() -> None:
    """Closing what never ran leaves nothing open."""
    server = HttpServer("127.0.0.1", 0, handle)
    server.close()
    server.close()


def test_a_client_that_comes_as_the_server_closes_is_dropped() -> None:
    """Whether it was accepted yet or not, nobody is left waiting on a server that is gone."""
    for _ in range(20):
        server = HttpServer("127.0.0.1", 0, handle)
        server.start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
            server.close()
            with contextlib.suppress(ConnectionResetError):
                assert raw.recv(1) == b""


def test_a_client_that_reads_nothing_is_let_go() -> None:
    """A page that nobody takes in holds its connection for a bounded time."""
    page = Response(200, "text/plain", b"x" * 32 * 2**20)
    with (
        HttpServer("127.0.0.1", 0, lambda _: page, idle_seconds=0.3, max_connections=1) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as greedy,
    ):
        greedy.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        until = time.monotonic() + 20
        while _status(server.port) is None:
            assert time.monotonic() < until, "its place is never free again"
            time.sleep(0.1)


def _status(port: int) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("HEAD", "/")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
