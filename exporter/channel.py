"""What a client and our server say to each other, plainly or through TLS.

TLS is driven here by hand: asyncio's own keeps a quarter of a megabyte for each connection, counts a connection only
once its handshake is over, and says nothing to a client that speaks plain HTTP by mistake.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Protocol, TypeVar

CHUNK_BYTES = 16 * 1024
PIECE_BYTES = 64 * 1024
_HANDSHAKE = b"\x16"
"""The first byte of every TLS connection."""
_NOT_TLS = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    b"this port speaks HTTPS\n"
)

T = TypeVar("T")


class Channel(Protocol):
    """Bytes to and from one client; the end of what it says is `b""`. Raises `OSError` when it is gone."""

    @property
    def certified(self) -> bool:
        """Whether it showed a certificate that is believed."""

    async def read(self) -> bytes:
        """The next bytes, a bounded number."""

    async def write(self, data: bytes | memoryview) -> None:
        """Send; returns when the client takes it in."""

    async def end(self) -> None:
        """Say that nothing more will come."""


class PlainChannel:
    """Without TLS."""

    certified = False

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        """The next bytes."""
        return await self._reader.read(CHUNK_BYTES)

    async def write(self, data: bytes | memoryview) -> None:
        """Send, a piece at a time: clients that take nothing in hold no copy of a page each."""
        rest = memoryview(data)
        while rest:
            self._writer.write(rest[:PIECE_BYTES])
            rest = rest[PIECE_BYTES:]
            await self._writer.drain()

    async def end(self) -> None:
        """The connection's own end says it."""


class TlsChannel:
    """Through TLS, as its server."""

    def __init__(self, plain: PlainChannel, context: ssl.SSLContext) -> None:
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    @property
    def certified(self) -> bool:
        """Whether the client showed a certificate of the CA; another would have ended the handshake."""
        return bool(self._tls.getpeercert())

    async def handshake(self) -> bool:
        """Agree on everything; false, and a word to the client, where it speaks no TLS. Raises `OSError`."""
        first = await self._plain.read()
        if first[:1] != _HANDSHAKE:
            if first:
                await self._plain.write(_NOT_TLS)
            return False
        self._incoming.write(first)
        await self._do(self._tls.do_handshake)
        return True

    async def read(self) -> bytes:
        """The next bytes."""
        try:
            return await self._do(lambda: self._tls.read(CHUNK_BYTES))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    async def write(self, data: bytes | memoryview) -> None:
        """Send."""
        # A piece at a time: what OpenSSL once held for a connection it never gives back before the connection's end.
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest[:CHUNK_BYTES]) :]
            await self._flush()

    async def end(self) -> None:
        """Tell that nothing is cut off; the client's own word is not waited for."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        await self._flush()

    async def _do(self, step: Callable[[], T]) -> T:
        """Take a step of TLS, with as many bytes to and fro as it wants."""
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                await self._flush()
                received = await self._plain.read()
                if received:
                    self._incoming.write(received)
                else:
                    self._incoming.write_eof()
            except ssl.SSLError:
                await self._flush()  # the alert that tells the client why
                raise
            else:
                await self._flush()
                return done

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._plain.write(self._outgoing.read())
