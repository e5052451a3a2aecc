"""A real HTTP server on loopback that behaves as a test tells it.

A behaviour is a function of one connection and one request; it returns whether the connection may serve another.
"""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

Behaviour = Callable[["Connection", "Request"], bool]


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Connection:
    """One client, as a behaviour sees it."""

    def __init__(self, sock: socket.socket, stopping: threading.Event) -> None:
        self._socket = sock
        self._stopping = stopping

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def wait(self, seconds: float) -> bool:
        """Pause; false when the server stops meanwhile."""
        return not self._stopping.wait(seconds)

    def reset(self) -> None:
        """End with a RST instead of a FIN."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def request(self) -> Request | None:
        """The next request, `None` when the client is done."""
        head = b""
        while b"\r\n\r\n" not in head:
            received = self._socket.recv(65536)
            if not received:
                return None
            head += received
            if not head[:1].isalpha():  # TLS, most likely
                self.send(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                return None
        first, *lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = (line.partition(":") for line in lines)
        return Request(method, path, {name.lower(): value.strip() for name, _, value in headers})


class PageServer:
    """A server with a port of its own, or the one asked for; `requests` and `connections` tell what it has seen."""

    def __init__(self, behaviour: Behaviour, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.behaviour = behaviour
        self.routes: dict[str, Behaviour] = {}
        """Path → behaviour, where it differs from the rest."""
        self.requests: list[Request] = []
        self.connections = 0
        self._tls = tls
        self._stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, drop every connection, wait for every thread; the port refuses from here on."""
        self._stopping.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(5)
        self.drop_connections()
        for thread in self._threads:
            thread.join(5)

    def drop_connections(self) -> None:
        """Close what is open, as a server that restarts does."""
        for sock in list(self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                # Out of descriptors, which a test may want, is no reason to stop listening.
                self._stopping.wait(0.01)
                continue
            self.connections += 1
            self._open.add(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), name=f"serve-{self.port}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        secured = sock
        try:
            if self._tls is not None:
                secured = self._tls.wrap_socket(sock, server_side=True)
                self._open.add(secured)
            connection = Connection(secured, self._stopping)
            while not self._stopping.is_set() and (request := connection.request()) is not None:
                self.requests.append(request)
                if not self.routes.get(request.path, self.behaviour)(connection, request):
                    break
        except OSError:  # the client went away, or never trusted us
            pass
        finally:
            self._open -= {sock, secured}
            secured.close()
            sock.close()
