"""Which GPUs the kubelet gave to a pod, by its pod-resources socket.

The API is gRPC (`v1.PodResourcesLister/List`): one HTTP/2 request on a local socket and a small protobuf answer. What
that takes of both protocols is below; a gRPC library would cost the daemon more memory than all of the rest.
References: RFC 9113 (frames), RFC 7541 (header fields), k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
"""

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from exporter.errors import SourceError

_LIMIT = 8 * 2**20
"""Most bytes of an answer that are read; a node's list is some hundred kilobytes."""
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 1, 1, 4, 8


def pod_devices(path: Path, namespace: str, pod: str, timeout: float = 0.5) -> frozenset[str]:
    """Device ids of every `nvidia.com/…` resource given to the pod's containers; empty where it has none.

    Raises `SourceError` with source `pod_resources`: reason `absent`, `no_permission`, `timeout`, `refused`,
    `bad_answer`, or `unknown_pod`.
    """
    pods = [p for p in _pods(_list(path, timeout)) if (p[0], p[1]) == (namespace, pod)]
    if not pods:
        raise SourceError("pod_resources", "unknown_pod", f"the kubelet lists no pod {pod} in namespace {namespace}")
    return frozenset(name for _, _, devices in pods for name in devices)


def _list(path: Path, timeout: float) -> bytes:
    deadline = time.monotonic() + timeout
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(_request())
            return _answer(connection, deadline)
    except FileNotFoundError:
        raise _error("absent", f"{path} does not exist: mount /var/lib/kubelet/pod-resources") from None
    except PermissionError:
        raise _error("no_permission", f"{path} may not be opened by this user: it is root's") from None
    except TimeoutError:
        raise _error("timeout", f"the kubelet did not answer on {path} within {timeout} s") from None
    except OSError as error:
        raise _error("refused", f"{path}: {error.strerror or error}") from None


def _error(reason: str, message: str) -> SourceError:
    return SourceError("pod_resources", reason, message)


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _request() -> bytes:
    """The whole of the client's side: preface, settings, and one call with an empty message."""
    headers = (
        b"\x83\x86"  # :method POST, :scheme http (static table)
        + b"\x04"
        + _literal("/v1.PodResourcesLister/List")
        + b"\x01"
        + _literal("localhost")
        + b"\x0f\x10"
        + _literal("application/grpc")
        + b"\x00"
        + _literal("te")
        + _literal("trailers")
    )
    settings = struct.pack(">HIHI", 2, 0, 4, _LIMIT)  # no server push; a window as large as the limit
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, settings)
        + _frame(_WINDOW, 0, 0, struct.pack(">I", _LIMIT))
        + _frame(_HEADERS, _END_HEADERS, 1, headers)
        + _frame(_DATA, _END_STREAM, 1, bytes(5))
    )


def _answer(connection: socket.socket, deadline: float) -> bytes:
    """The protobuf message of the response: DATA frames until the length its first five bytes give."""
    body = bytearray()
    while len(body) < 5 or len(body) < 5 + int.from_bytes(body[1:5], "big"):
        head = _exactly(connection, 9, deadline)
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        payload = _exactly(connection, length, deadline)
        if kind == _DATA:
            body += _unpadded(payload) if flags & _PADDED else payload
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            connection.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        if kind in (_RST, _GOAWAY) or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            break
        if len(body) > _LIMIT:
            raise _error("bad_answer", f"the kubelet's list is longer than {_LIMIT} bytes")
    if len(body) < 5 or body[0] or len(body) != 5 + int.from_bytes(body[1:5], "big"):
        raise _error("bad_answer", "the kubelet answered without a list: is its pod-resources API v1 switched on?")
    return bytes(body[5:])


def _unpadded(payload: bytes) -> bytes:
    """What a DATA frame holds whose first byte says how much of its end is padding."""
    if not payload or payload[0] >= len(payload):
        raise _error("bad_answer", "the kubelet sent a frame with more padding than it has room for")
    return payload[1 : len(payload) - payload[0]]


def _exactly(connection: socket.socket, count: int, deadline: float) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        part = connection.recv(min(count - len(parts), 65536))
        if not part:
            raise ConnectionResetError("closed before the answer was complete")
        parts += part
    return bytes(parts)


def _pods(message: bytes) -> Iterator[tuple[str, str, list[str]]]:
    """(namespace, name, NVIDIA device ids) of each pod of a ListPodResourcesResponse."""
    for pod in _messages(message, 1):
        devices = [
            _string(device_id)
            for container in _messages(pod, 3)
            for entry in _messages(container, 2)
            if any(_string(name).startswith("nvidia.com/") for name in _messages(entry, 1))
            for device_id in _messages(entry, 2)
        ]
        yield _first(pod, 2), _first(pod, 1), devices


def _messages(data: bytes, wanted: int) -> list[bytes]:
    """The length-delimited values of field `wanted`; every other field is skipped."""
    found, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise _error("bad_answer", "the kubelet's list is cut short")
            if key >> 3 == wanted:
                found.append(data[at : at + size])
            at += size
        elif kind == 0:
            _, at = _varint(data, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise _error("bad_answer", "the kubelet's list is not protobuf")
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise _error("bad_answer", "the kubelet's list is not protobuf")


def _first(message: bytes, field: int) -> str:
    values = _messages(message, field)
    return _string(values[0]) if values else ""


def _string(data: bytes) -> str:
    return data.decode(errors="replace")
