"""The kubelet's socket: a real gRPC server, and servers that misbehave."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import SourceError
from exporter.sources.gpu_evidence import GpuEvidence, Pod
from exporter.sources.pod_resources import _pods, pod_devices
from exporter.sources.server_process import ServerProcess
from tests.support.node import NODE, devices, pod


@contextmanager
def kubelet(path: Path, answer: bytes | grpc.StatusCode) -> Iterator[None]:
    """A gRPC server that serves v1.PodResourcesLister/List."""

    def listed(request: bytes, context: grpc.ServicerContext) -> bytes:
        assert request == b""
        if isinstance(answer, bytes):
            return answer
        context.abort(answer, "no")
        raise AssertionError

    server = grpc.server(futures.ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(listed)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


@contextmanager
def raw(path: Path, talk: Callable[[socket.socket], None]) -> Iterator[None]:
    """A server that accepts one connection and does what `talk` says."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            talk(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        listener.close()


def silent(connection: socket.socket) -> None:
    """Listen until the other side has gone."""
    while connection.recv(65536):
        pass


def frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


@pytest.mark.parametrize(
    ("name", "expected"),
    [("llm-0", {"GPU-1", "GPU-2"}), ("sliced", {"MIG-1", "GPU-3::2"}), ("cpu-only", set())],
)
def test_a_real_grpc_server_is_understood(tmp_path: Path, name: str, expected: set[str]) -> None:
    """The pod's own NVIDIA devices, whatever the resource is called; nobody else's and no other vendor's."""
    with kubelet(tmp_path / "kubelet.sock", NODE):
        assert pod_devices(tmp_path / "kubelet.sock", "ai", name, timeout=5) == expected


def test_a_node_with_a_megabyte_of_pods_is_read_whole(tmp_path: Path) -> None:
    """Flow control does not stop a list longer than HTTP/2's first window."""
    many = b"".join(pod("ai", f"p{n}", devices("nvidia.com/gpu", f"GPU-{n}-" + "x" * 200)) for n in range(5000))
    with kubelet(tmp_path / "kubelet.sock", many):
        assert len(pod_devices(tmp_path / "kubelet.sock", "ai", "p4999", timeout=20)) == 1
    assert len(many) > 2**20


def test_a_pod_that_is_not_listed_is_an_error(tmp_path: Path) -> None:
    """A wrong name is not "no GPUs"."""
    with (
        kubelet(tmp_path / "kubelet.sock", NODE),
        pytest.raises(SourceError, match="no pod llm-9 in namespace ai") as error,
    ):
        pod_devices(tmp_path / "kubelet.sock", "ai", "llm-9", timeout=5)
    assert error.value.reason == "unknown_pod"


@pytest.mark.parametrize("code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_a_refused_call_is_an_error(tmp_path: Path, code: grpc.StatusCode) -> None:
    """An old kubelet without API v1, or one that limits the rate, gives a reason and no devices."""
    with kubelet(tmp_path / "kubelet.sock", code), pytest.raises(SourceError) as error:
        pod_devices(tmp_path / "kubelet.sock", "ai", "llm-0", timeout=5)
    assert error.value.reason == "bad_answer"


def test_an_absent_socket_says_what_to_mount(tmp_path: Path) -> None:
    """Most pods do not have it."""
    with pytest.raises(SourceError, match="mount /var/lib/kubelet/pod-resources") as error:
        pod_devices(tmp_path / "kubelet.sock", "ai", "llm-0")
    assert error.value.reason == "absent"


def test_a_file_that_is_no_socket_is_refused(tmp_path: Path) -> None:
    """A mount of the wrong thing gives a reason."""
    (tmp_path / "kubelet.sock").write_text("")
    with pytest.raises(SourceError) as error:
        pod_devices(tmp_path / "kubelet.sock", "ai", "llm-0")
    assert error.value.reason == "refused"


def test_a_silent_kubelet_costs_no_more_than_the_timeout(tmp_path: Path) -> None:
    """A socket that accepts and says nothing is a timeout."""
    with raw(tmp_path / "kubelet.sock", silent), pytest.raises(SourceError) as error:
        pod_devices(tmp_path / "kubelet.sock", "ai", "llm-0", timeout=0.1)
    assert error.value.reason == "timeout"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "refused"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "refused"),
        (frame(7, 0, bytes(8), 0), "bad_answer"),
        (frame(3, 0, bytes(4)), "bad_answer"),
        (frame(0, 1, b"\x01" + bytes(4)), "bad_answer"),
        (frame(0, 1, b"\x00\x00\x00\x00\x02\x0a\x7f"), "bad_answer"),
        (frame(0, 1, b"\x00\x00\x00\x00\x01\x0b"), "bad_answer"),
    ],
)
def test_any_other_answer_has_a_reason(tmp_path: Path, sent: bytes, reason: str) -> None:
    """Closed, not HTTP/2, told to go away, reset, compressed, cut short, not protobuf."""

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(sent)

    with raw(tmp_path / "kubelet.sock", talk), pytest.raises(SourceError) as error:
        pod_devices(tmp_path / "kubelet.sock", "ai", "llm-0", timeout=5)
    assert error.value.reason == reason


def test_settings_and_pings_are_acknowledged_and_padding_removed(tmp_path: Path) -> None:
    """The little of HTTP/2 that a kubelet may use is honoured."""
    heard = bytearray()

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(frame(4, 0, b"", 0) + frame(6, 0, b"12345678", 0))
        while len(heard) < 9 + 17:
            heard.extend(connection.recv(65536))
        body = b"\x00" + struct.pack(">I", len(NODE)) + NODE
        connection.sendall(frame(1, 4, b"\x88") + frame(0, 8, b"\x03" + body[:10] + bytes(3)) + frame(0, 0, body[10:]))

    with raw(tmp_path / "kubelet.sock", talk):
        assert pod_devices(tmp_path / "kubelet.sock", "ai", "llm-0", timeout=5) == {"GPU-1", "GPU-2"}
    assert bytes(heard) == frame(4, 1, b"", 0) + frame(6, 1, b"12345678", 0)


@given(st.binary(max_size=200))
def test_garbage_is_a_reason_and_not_a_crash(data: bytes) -> None:
    """Whatever bytes come as a list, they are pods or a SourceError."""
    try:
        pods = list(_pods(data))
    except SourceError as error:
        pods = [(error.reason, "", [])]
    assert all(isinstance(namespace, str) for namespace, _, _ in pods)


def test_evidence_keeps_what_the_kubelet_told(tmp_path: Path) -> None:
    """A pod's GPUs never change: once told, the socket is not asked again."""
    path = tmp_path / "kubelet.sock"
    gather = GpuEvidence(ServerProcess(tmp_path), socket=path, pod=Pod("ai", "llm-0"))
    assert gather(0.0).pod_devices is None
    with kubelet(path, NODE):
        told = [evidence for _ in range(50) if (evidence := gather(1.0)).pod_devices is not None]
    assert told
    assert gather(2.0).pod_devices == frozenset({"GPU-1", "GPU-2"})


@pytest.mark.parametrize(
    ("socket_path", "name", "note"),
    [
        (None, None, "pod-resources socket is not configured"),
        (Path("/nonexistent"), None, "pass POD_NAME and POD_NAMESPACE by the downward API"),
        (Path("/nonexistent"), Pod("ai", "llm-0"), "/nonexistent does not exist"),
    ],
)
def test_every_gap_in_the_evidence_has_its_note(
    tmp_path: Path, socket_path: Path | None, name: Pod | None, note: str
) -> None:
    """What is missing, and what to change, can be read by a person."""
    evidence = GpuEvidence(ServerProcess(tmp_path), socket=socket_path, pod=name)(0.0)
    assert evidence.pod_devices is None
    assert any(note in line for line in evidence.notes)
    assert any("shareProcessNamespace" in line for line in evidence.notes)
