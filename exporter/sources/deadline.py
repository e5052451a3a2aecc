"""HTTP exchanges that are over when their time is: name lookup, connection, TLS, headers and body together.

httpx bounds each read alone; a server that sends a byte now and then would hold a reader for ever, and a name
service that is gone holds it in `getaddrinfo`, which knows no timeout at all.
"""

import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
import httpx

from exporter.errand import Errand

Clock = Callable[[], float]
Resolve = Callable[[str, int], list[str]]

_KEEPALIVE_SECONDS = 4.0
"""Less than the 5 s after which vLLM's own server closes an idle connection, lest a request meets that moment."""


class Deadline:
    """The moment by which the exchange in progress must be over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end = 0.0

    def start(self, seconds: float) -> None:
        """An exchange begins now and may take `seconds`."""
        self._end = self._clock() + seconds

    def left(self, late: type[httpcore.TimeoutException]) -> float:
        """Seconds that are left, always more than none; raises `late` when there are none."""
        seconds = self._end - self._clock()
        if seconds <= 0:
            raise late("the time for the whole exchange is over")
        return seconds


class DeadlineTransport(httpx.HTTPTransport):
    """An httpx transport with one kept connection, for one exchange at a time, each of at most `seconds`."""

    def __init__(
        self,
        seconds: float,
        ssl_context: ssl.SSLContext | None = None,
        clock: Clock = time.monotonic,
        resolve: Resolve | None = None,
    ) -> None:
        # httpx's own constructor loads a CA bundle that plain HTTP never needs, and takes no network backend.
        self._seconds = seconds
        self._deadline = Deadline(clock)
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl_context,
            max_connections=1,
            keepalive_expiry=_KEEPALIVE_SECONDS,
            network_backend=_Backend(self._deadline, resolve or _resolve),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request`; the deadline holds until the response is closed."""
        self._deadline.start(self._seconds)
        return super().handle_request(request)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, deadline: Deadline, resolve: Resolve) -> None:
        self._sockets = httpcore.SyncBackend()
        self._deadline = deadline
        self._resolve = resolve
        self._place: tuple[str, int] | None = None
        self._lookup: Errand[list[str]] | None = None

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 – what is left of the deadline counts instead
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        addresses = self._addresses(host, port)
        refusal: Exception = httpcore.ConnectError(f"{host} has no address")
        for behind, address in enumerate(addresses):
            # An address that swallows packets must leave time for the next one.
            left = self._deadline.left(httpcore.ConnectTimeout) / (len(addresses) - behind)
            try:
                stream = self._sockets.connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                refusal = error
            else:
                return _Stream(stream, self._deadline)
        raise refusal

    def _addresses(self, host: str, port: int) -> list[str]:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            return [host]
        # A lookup that hangs is waited for again, not started again.
        if self._lookup is None or self._place != (host, port):
            self._place = host, port
            self._lookup = Errand(lambda: self._resolve(host, port))
        lookup = self._lookup
        if not lookup.done(self._deadline.left(httpcore.ConnectTimeout)):
            if lookup.abandon():
                self._lookup = None
            raise httpcore.ConnectTimeout(f"looking up {host} took too long")
        self._lookup = None
        try:
            return lookup.answer()
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} cannot be looked up") from error


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return self._stream.read(max_bytes, self._deadline.left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._stream.write(buffer, self._deadline.left(httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
