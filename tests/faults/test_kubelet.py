"""A kubelet's socket that goes wrong: the GPUs are found by the next rule, and by the kubelet's word once it tells."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from exporter.sources.gpu_evidence import GpuEvidence, Pod
from exporter.sources.gpus import GpuSource
from exporter.sources.server_process import ServerProcess
from tests.sources.fakes import FakeLibrary, gpu
from tests.support.node import devices, pod

LIST = pod("ai", "llm-0", devices("nvidia.com/gpu", "GPU-1"))
ANSWER = b"\x00" + struct.pack(">I", len(LIST)) + LIST
AGAIN_SECONDS = 30.0
Talk = Callable[[socket.socket], None]


def frame(kind: int, payload: bytes, flags: int = 0) -> bytes:
    """An HTTP/2 frame of stream 1."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, 1) + payload


def good(connection: socket.socket) -> None:
    """Tell the pod's GPUs."""
    connection.sendall(frame(1, b"\x88", 4) + frame(0, ANSWER))


def sending(data: bytes, then: float = 0.0) -> Talk:
    """Send this, and close so many seconds later."""

    def talk(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.settimeout(then or 0.001)
        with suppress(TimeoutError):
            while connection.recv(65536):
                pass

    return talk


def dripping(connection: socket.socket) -> None:
    """A byte now and then."""
    for byte in frame(0, ANSWER):
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def endless(connection: socket.socket) -> None:
    """A list without an end, of which nine megabytes are sent."""
    connection.sendall(frame(1, b"\x88", 4) + frame(0, b"\x00\x7f\xff\xff\xff"))
    for _ in range(9 * 64):
        connection.sendall(frame(0, bytes(16384)))


FAULTS: dict[str, tuple[Talk, str]] = {
    "slow": (sending(b"", then=30), "did not answer"),
    "hangs mid-body": (sending(frame(1, b"\x88", 4) + frame(0, ANSWER)[:-3], then=30), "did not answer"),
    "garbage": (sending(bytes(range(9)) * 50), "without a list"),
    "truncated": (sending(frame(1, b"\x88", 4) + frame(0, ANSWER)[:-3]), "closed before"),
    "huge": (endless, "longer than"),
    "drips": (dripping, "did not answer"),
    "wrong content": (sending(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>"), "closed before"),
    "hangs up": (sending(b""), ""),
}


@contextmanager
def kubelet(path: Path, talk: list[Talk]) -> Iterator[None]:
    """A server that does with each connection what stands in `talk` now."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(8)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.recv(65536)
                talk[0](connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def source_of(path: Path, tmp_path: Path) -> GpuSource:
    """Two GPUs, of which the kubelet gave one to our pod."""
    evidence = GpuEvidence(ServerProcess(tmp_path), socket=path, pod=Pod("ai", "llm-0"))
    return GpuSource(FakeLibrary(gpu(0), gpu(1)), evidence=evidence, ownership_seconds=AGAIN_SECONDS)


def proven(source: GpuSource, note: str) -> None:
    """The GPUs are told by the next rule, with a note, in time."""
    begun = time.monotonic()
    assert {reading.uuid for reading in source.read(0.0)} == {"GPU-0", "GPU-1"}
    assert time.monotonic() - begun < 3
    assert source.ownership is not None
    assert source.ownership.rule == "all_visible"
    assert any(note in each for each in source.ownership.notes)


@pytest.mark.parametrize("name", FAULTS)
def test_a_kubelet_that_goes_wrong_leaves_the_gpus(tmp_path: Path, name: str) -> None:
    """While it does, every GPU that can be seen is told of; at the next look its word counts."""
    path = tmp_path / "kubelet.sock"
    fault, note = FAULTS[name]
    talk = [fault]
    with kubelet(path, talk):
        source = source_of(path, tmp_path)
        proven(source, note)
        talk[0] = good
        # The server may still be busy with the connection that was given up.
        told = [reading.uuid for now in range(1, 9) for reading in source.read(now * AGAIN_SECONDS + 1)]
        assert told[-1] == "GPU-1"
        assert source.ownership is not None
        assert source.ownership.rule == "pod_resources"


def test_a_socket_nobody_listens_on(tmp_path: Path) -> None:
    """A kubelet that is not there, or is gone and left its socket, is a note; once it listens its word counts."""
    path = tmp_path / "kubelet.sock"
    source = source_of(path, tmp_path)
    proven(source, "does not exist")
    with kubelet(path, [good]):
        pass
    source = source_of(path, tmp_path)
    proven(source, "refused")
    path.unlink()
    with kubelet(path, [good]):
        assert [reading.uuid for reading in source.read(AGAIN_SECONDS + 1)] == ["GPU-1"]
