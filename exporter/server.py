"""A small HTTP server for our own pages: one thread, bounded connections, times and request sizes.

It runs an event loop in a thread of its own, so that a thousand scrapes at once cost no thousand threads and a
client that sends slowly costs one idle socket. What is said on a connection is in `conversation.py`.
"""

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from typing import Any

import h11

from exporter.channel import Channel, PlainChannel, TlsChannel
from exporter.conversation import MAX_HEAD_BYTES, Conversation
from exporter.descriptors import affordable
from exporter.errors import UsageError
from exporter.exchange import Guard, Handler, Request, Response

__all__ = ["Guard", "Handler", "HttpServer", "Request", "Response"]

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

    async def _talk(self, channel: Channel) -> None:
        await Conversation(channel, self._handle, self._guard, self._idle_seconds).hold()

    async def _welcome(self, plain: PlainChannel) -> None:
        """Secure the connection where that is wanted, and talk."""
        context = None if self._guard is None else self._guard.context()
        if context is None:
            await self._talk(plain)
            return
        secured = TlsChannel(plain, context)
        async with asyncio.timeout(self._idle_seconds):
            if not await secured.handshake():
                return
        await self._talk(secured)
        async with asyncio.timeout(self._idle_seconds):
            await secured.end()
