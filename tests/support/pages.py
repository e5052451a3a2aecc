"""How a metrics page is served on loopback, and every way in which that can go wrong.

with PageServer(answer(text)) as server:
    read(server.url)
    server.behaviour = hang()
    read(server.url)
"""

import gzip
from collections.abc import Mapping

from tests.support.loopback import Behaviour, Connection, PageServer, Request

__all__ = [
    "Behaviour",
    "PageServer",
    "answer",
    "chunked",
    "disconnect",
    "endless",
    "garbage",
    "gzip_bomb",
    "gzipped",
    "hang",
    "html",
    "in_turn",
    "not_http",
    "redirect",
    "silence",
    "slow",
    "status",
    "trickle",
    "truncated",
    "until_close",
]

PAGE_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def answer(
    body: str | bytes,
    status: int = 200,
    content_type: str = PAGE_TYPE,
    headers: Mapping[str, str] | None = None,
) -> Behaviour:
    """A proper answer with a Content-Length."""
    data = _bytes(body)
    head = _head(status, {"Content-Type": content_type, "Content-Length": str(len(data)), **(headers or {})})

    def behave(connection: Connection, request: Request) -> bool:
        connection.send(head if request.method == "HEAD" else head + data)
        return True

    return behave


def chunked(body: str | bytes, chunk_bytes: int = 1000, end: bool = True) -> Behaviour:
    """A proper answer in HTTP chunks; without `end` it lacks the last, empty one."""
    data = _bytes(body)

    def behave(connection: Connection, request: Request) -> bool:
        connection.send(_head(200, {"Content-Type": PAGE_TYPE, "Transfer-Encoding": "chunked"}))
        for at in range(0, len(data), chunk_bytes):
            chunk = data[at : at + chunk_bytes]
            connection.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if end:
            connection.send(b"0\r\n\r\n")
        return end

    return behave


def until_close(body: str | bytes) -> Behaviour:
    """An answer whose end is the end of the connection, as HTTP/1.0 does it."""

    def behave(connection: Connection, request: Request) -> bool:
        connection.send(_head(200, {"Content-Type": PAGE_TYPE, "Connection": "close"}) + _bytes(body))
        return False

    return behave


def truncated(body: str | bytes, sent_bytes: int) -> Behaviour:
    """Promise the whole body, send `sent_bytes` of it, close."""
    data = _bytes(body)

    def behave(connection: Connection, request: Request) -> bool:
        connection.send(_head(200, {"Content-Type": PAGE_TYPE, "Content-Length": str(len(data))}))
        connection.send(data[:sent_bytes])
        return False

    return behave


def slow(behaviour: Behaviour, seconds: float) -> Behaviour:
    """Answer as `behaviour` does, `seconds` late."""

    def behave(connection: Connection, request: Request) -> bool:
        return connection.wait(seconds) and behaviour(connection, request)

    return behave


def hang(body: str | bytes = b"", sent_bytes: int = 0) -> Behaviour:
    """Send the headers and the first `sent_bytes`, then nothing more, for ever."""
    data = _bytes(body)

    def behave(connection: Connection, request: Request) -> bool:
        connection.send(_head(200, {"Content-Type": PAGE_TYPE, "Content-Length": str(len(data) + 1)}))
        connection.send(data[:sent_bytes])
        while connection.wait(1):
            pass
        return False

    return behave


def silence() -> Behaviour:
    """Accept the request and say nothing, for ever."""

    def behave(connection: Connection, request: Request) -> bool:
        while connection.wait(1):
            pass
        return False

    return behave


def trickle(body: str | bytes, interval_seconds: float = 0.02, headers_too: bool = False) -> Behaviour:
    """Send one byte every `interval_seconds`: never silent, never done."""
    data = _bytes(body)
    head = _head(200, {"Content-Type": PAGE_TYPE, "Content-Length": str(len(data))})

    def behave(connection: Connection, request: Request) -> bool:
        slowly = head + data if headers_too else data
        if not headers_too:
            connection.send(head)
        for at in range(len(slowly)):
            connection.send(slowly[at : at + 1])
            if not connection.wait(interval_seconds):
                return False
        return True

    return behave


def endless(size_bytes: int, line: str = 'vllm:num_requests_running{engine="0",model_name="m"} 1\n') -> Behaviour:
    """A body of `size_bytes` that looks like a page, sent as fast as it is taken."""
    block = line.encode() * (65536 // len(line))

    def behave(connection: Connection, request: Request) -> bool:
        connection.send(_head(200, {"Content-Type": PAGE_TYPE, "Content-Length": str(size_bytes)}))
        for at in range(0, size_bytes, len(block)):
            connection.send(block[: size_bytes - at])
        return True

    return behave


def gzipped(body: str | bytes, sent_bytes: int | None = None) -> Behaviour:
    """The body compressed, whether asked for or not; cut off after `sent_bytes`."""
    return answer(gzip.compress(_bytes(body))[:sent_bytes], headers={"Content-Encoding": "gzip"})


def gzip_bomb(size_bytes: int) -> Behaviour:
    """A small answer that unpacks to `size_bytes`."""
    return gzipped(b"# " + b"0" * size_bytes)


def status(code: int, body: str = '{"error":{"message":"no"}}') -> Behaviour:
    """An error in JSON, as vLLM and proxies send it."""
    return answer(body, status=code, content_type="application/json")


def redirect(to: str, code: int = 307) -> Behaviour:
    """A redirect."""
    return answer("", status=code, headers={"Location": to})


def html() -> Behaviour:
    """What a login page or an ingress answers: status 200 and HTML."""
    return answer("<!DOCTYPE html>\n<html><body>Sign in</body></html>\n", content_type="text/html; charset=utf-8")


def garbage(size_bytes: int = 4096) -> Behaviour:
    """Bytes without meaning under a page's content type."""
    return answer(bytes((at * 7919 + 13) % 256 for at in range(size_bytes)))


def not_http() -> Behaviour:
    """Another protocol."""

    def behave(connection: Connection, request: Request) -> bool:
        connection.send(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n")
        return False

    return behave


def disconnect(reset: bool = False) -> Behaviour:
    """Close, or reset, the connection instead of answering."""

    def behave(connection: Connection, request: Request) -> bool:
        if reset:
            connection.reset()
        return False

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """One behaviour a request; the last one stays."""
    remaining = list(behaviours)

    def behave(connection: Connection, request: Request) -> bool:
        current = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return current(connection, request)

    return behave


def _head(code: int, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {code} Whatever\r\n{lines}\r\n".encode("latin-1")


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body
