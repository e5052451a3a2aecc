"""A small HTTP server for our own pages: one thread, bounded connections, times and request sizes.

It runs an event loop in a thread of its own, so that a thousand scrapes at once cost no thousand threads and a
client that sends slowly costs one idle socket. HTTP itself is h11's.
"""

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from http import HTTPStatus
from typing import Any

import h11

from exporter.channel import PIECE_BYTES, Channel, PlainChannel, TlsChannel
from exporter.descriptors import affordable
from exporter.errors import UsageError
from exporter.exchange import Guard, Handler, Request, Response

__all__ = ["Guard", "Handler", "HttpServer", "Request", "Response"]

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 64 * 1024
MAX_SECURED_CONNECTIONS = 512
"""OpenSSL holds about 40 KiB for each."""
_PAUSE_SECONDS = 0.1
_AT_A_STROKE = 32
_WAITING = 1024
"""Connections that the kernel holds until they are accepted."""
_TURNS = 8
"""Of the event loop, within which a connection that was just accepted comes to run and can be ended; it takes 4."""


class HttpServer:
    """Serves `handle` on host and port until closed; port 0 takes a free one.

    `handle` runs on the event loop and must not block; `guard` is asked before it. GET and HEAD are served; other
    methods are answered 405. A client may be silent for `idle_seconds`, and take that long for a TLS handshake.
    Raises `UsageError` when the address cannot be bound.
    """

    def __init__(
        self,
        host: str,
        port: int,
        handle: Handler,
        *,
        guard: Guard | None = None,
        idle_seconds: float = 15.0,
        max_connections: int = 2048,
    ) -> None:
        self._host, self._port = host.strip("[]"), port
        self._handle = handle
        self._guard = guard
        self._idle_seconds = idle_seconds
        secure = guard is not None and guard.secure
        self._max_connections = affordable(min(max_connections, MAX_SECURED_CONNECTIONS) if secure else max_connections)
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._complain)
        self._said = ""
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def __enter__(self) -> "HttpServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Bind and serve; returns when the port accepts connections."""
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(self._bind(), self._loop)
        try:
            self._server = starting.result()
        except OSError as error:
            self.close()
            raise UsageError(
                f"cannot listen on {self._host}:{self._port}: {error.strerror or error}. "
                "Is another vllm-headroom running there? Choose another address with --listen HOST:PORT."
            ) from None

    @property
    def port(self) -> int:
        """The port that is bound."""
        if self._server is None:
            return self._port
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    @property
    def url(self) -> str:
        """The base URL to reach the server by."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104 – read, not bound
        scheme = "https" if self._guard is not None and self._guard.secure else "http"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    def close(self) -> None:
        """Stop accepting, drop what is open and end the thread; may be called twice."""
        if not self._thread.is_alive():
            self._loop.close()
            return
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(timeout=5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    def _run(self) -> None:
        """Run the event loop until it is told to stop: without memory it fails, and must go on when there is some."""
        while True:
            try:
                self._loop.run_forever()
                return
            except Exception:
                time.sleep(_PAUSE_SECONDS)

    async def _bind(self) -> asyncio.Server:
        # asyncio accepts as many at a stroke as it is told may wait, before it serves, or refuses, a single one.
        server = await asyncio.start_server(
            self._serve, self._host, self._port, limit=MAX_HEAD_BYTES, backlog=_AT_A_STROKE, start_serving=True
        )
        for listener in server.sockets:
            with socket.socket(fileno=os.dup(listener.fileno())) as same:
                same.listen(_WAITING)
        return server

    def _complain(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Say in a line what the event loop ran into, once: without descriptors it says the same a thousand times."""
        error = context.get("exception")
        what = f"{context.get('message', '').splitlines()[0]}: {type(error).__name__}"
        if what != self._said:
            self._said = what
            logging.getLogger(__name__).warning("the page's server: %s", what)

    async def _shut(self) -> None:
        if self._server is not None:
            # asyncio loses a connection between its acceptance and its transport when the server is closed meanwhile.
            for listener in self._server.sockets:
                self._loop.remove_reader(listener.fileno())
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.sleep(0)  # closed transports let go of their sockets on the next turn of the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= self._max_connections:
            writer.close()
            return
        self._connections.add(task)
        try:
            with contextlib.suppress(OSError, TimeoutError, h11.LocalProtocolError):
                await self._welcome(PlainChannel(reader, writer))
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._idle_seconds):
                    await writer.wait_closed()
        except asyncio.CancelledError:  # the server is closed
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _welcome(self, plain: PlainChannel) -> None:
        """Secure the connection where that is wanted, and talk."""
        context = None if self._guard is None else self._guard.context()
        if context is None:
            await self._converse(plain)
            return
        secured = TlsChannel(plain, context)
        async with asyncio.timeout(self._idle_seconds):
            if not await secured.handshake():
                return
        await self._converse(secured)
        async with asyncio.timeout(self._idle_seconds):
            await secured.end()

    async def _converse(self, channel: Channel) -> None:
        """Answer one request after another on a kept-alive connection."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        while True:
            try:
                async with asyncio.timeout(self._idle_seconds):
                    request = await _next_request(connection, channel)
            except h11.RemoteProtocolError as error:
                refusal = Response.text(error.error_status_hint, "bad request")
                await self._send(connection, channel, refusal, head_only=False)
                return
            if request is None:
                return
            answer = await self._refusal(request, channel) or self._answer(request)
            await self._send(connection, channel, answer, head_only=request.method == "HEAD")
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()

    async def _refusal(self, request: Request, channel: Channel) -> Response | None:
        if self._guard is None:
            return None
        async with asyncio.timeout(self._idle_seconds):
            return await self._guard.refuse(request, certified=channel.certified)

    def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            refusal = Response.text(405, "only GET and HEAD are served here")
            return Response(405, refusal.content_type, refusal.body, {"Allow": "GET, HEAD"})
        try:
            return self._handle(request)
        except Exception:  # a page that fails must not take the connection or the server with it
            logging.getLogger(__name__).exception("the page %s could not be made", request.path)
            return Response.text(500, "this page could not be made; see the log")

    async def _send(self, connection: h11.Connection, channel: Channel, response: Response, *, head_only: bool) -> None:
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            "X-Content-Type-Options": "nosniff",
            **response.headers,
        }
        reason = HTTPStatus(response.status).phrase.encode()
        head = h11.Response(status_code=response.status, headers=list(headers.items()), reason=reason)
        begin = connection.send(head) or b""
        body = memoryview(b"" if head_only else response.body)
        if body:
            connection.send(h11.Data(data=response.body))
        connection.send(h11.EndOfMessage())
        async with asyncio.timeout(self._idle_seconds):
            # Beyond its beginning a page is not copied: it is one for all who read it.
            await channel.write(begin + body[:PIECE_BYTES])
            await channel.write(body[PIECE_BYTES:])


async def _next_request(connection: h11.Connection, channel: Channel) -> Request | None:
    """The next whole request, its body read and dropped; `None` when the client is gone."""
    request: Request | None = None
    dropped = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await channel.read())
        elif isinstance(event, h11.Request):
            path, _, query = event.target.decode("ascii", "replace").partition("?")
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            request = Request(event.method.decode("ascii"), path or "/", query, headers)
        elif isinstance(event, h11.Data):
            dropped += len(event.data)
            if dropped > MAX_BODY_BYTES:
                raise h11.RemoteProtocolError("body too large", error_status_hint=413)
        elif isinstance(event, h11.EndOfMessage):
            return request
        else:
            return None
