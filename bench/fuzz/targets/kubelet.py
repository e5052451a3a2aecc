"""What comes out of the kubelet's pod-resources socket: HTTP/2 frames, and protobuf within them.

An input that begins with `P` is a protobuf message and is sent in one frame; any other is sent as it is.
"""

import atexit
import functools
import socket
import tempfile
import threading
from pathlib import Path

from bench.fuzz.target import Target
from exporter.errors import SourceError
from exporter.sources.pod_resources import pod_devices
from tests.support.node import NODE

_MESSAGE = b"P"


class Kubelet:
    """A socket whose every connection gets `answer` and is closed after it."""

    def __init__(self) -> None:
        self.answer = b""
        self._directory = tempfile.TemporaryDirectory(prefix="fuzz-kubelet-")
        self.path = Path(self._directory.name, "s")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(4)
        atexit.register(self._directory.cleanup)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                try:
                    connection.sendall(self.answer)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65_536):
                        pass
                except OSError:
                    pass  # the reader had enough


@functools.cache
def kubelet() -> Kubelet:
    """One for the whole process."""
    return Kubelet()


def frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def response(message: bytes) -> bytes:
    """A whole answer of gRPC, with as many frames as a server would use."""
    data = b"\0" + len(message).to_bytes(4) + message
    return frame(4, 0, b"", 0) + frame(1, 4, b"\x88") + frame(0, 0, data) + frame(1, 5, b"\x88")


def check(data: bytes) -> None:
    """Device ids, or a `SourceError`."""
    server = kubelet()
    server.answer = response(data[1:]) if data.startswith(_MESSAGE) else data
    devices = pod_devices(server.path, "ai", "llm-0")
    assert all(isinstance(device, str) for device in devices)


def seeds() -> list[bytes]:
    """A node's list as a message and as frames, padded and cut, and what a server says when it does not like it."""
    whole = b"\0" + len(NODE).to_bytes(4) + NODE
    padded = frame(0, 8, b"\x04" + whole[:60] + bytes(4)) + frame(0, 1, whole[60:])
    return [
        _MESSAGE + NODE,
        response(NODE),
        frame(4, 0, b"", 0) + frame(6, 0, bytes(8), 0) + padded,
        frame(7, 0, bytes(8), 0),
        frame(3, 0, bytes(4)),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ]


TARGET = Target(
    name="kubelet",
    check=check,
    seeds=seeds,
    tokens=(b"\x0a", b"\x12", b"\x1a", b"\xff" * 10, b"nvidia.com/gpu", b"GPU-1", frame(0, 8, b""), frame(0, 0, b"")),
    allowed=(SourceError,),
    longest=2048,
)
