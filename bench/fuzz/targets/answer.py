"""The bytes that a server sends back over HTTP, from the status line on: the page, the models, the version."""

import gzip

import httpcore
import httpx

from bench.fuzz.target import Target
from exporter.errors import SourceError
from exporter.sources.endpoint import Access
from exporter.sources.vllm import VllmSource
from tests.support.expositions import TWO_ENGINES, exposition

LIMIT = 65_536
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n"
MODELS = b'{"data":[{"id":"m","root":"org/m","max_model_len":4096},{"id":"lora","parent":"m"}]}'


class Sent(httpx.HTTPTransport):
    """httpx's own transport over a connection on which `data` arrives, whatever is asked."""

    def __init__(self, data: bytes) -> None:
        self._pool = httpcore.ConnectionPool(network_backend=httpcore.MockBackend([data, b""]))


def check(data: bytes) -> None:
    """Whatever arrives is an answer or a `SourceError` with a word that is fit for a label."""
    for ask in (VllmSource.read, VllmSource.read_models, VllmSource.read_version):
        source = VllmSource("http://vllm:8000", Access(body_limit_bytes=LIMIT), transport=Sent(data))
        fault = None
        try:
            ask(source)
        except SourceError as error:
            fault = error
        source.close()
        if fault is not None:
            assert fault.reason.replace("_", "").isalnum()
            assert len(fault.reason) <= 24
            assert str(fault).isprintable()
            assert len(str(fault)) <= 600


def seeds() -> list[bytes]:
    """Whole answers of several kinds."""
    lines = [line for line in exposition(TWO_ENGINES).splitlines() if 'engine="0"' in line and "bucket" not in line]
    page = "\n".join(lines[:12]).encode() + b"\n"
    packed = gzip.compress(page, mtime=0)
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (page[:100], page[100:])) + b"0\r\n\r\n"
    models = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    return [
        HEAD + b"content-length: %d\r\n\r\n" % len(page) + page,
        HEAD + b"\r\n" + page,
        HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunked,
        HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed,
        models + b"content-length: %d\r\n\r\n" % len(MODELS) + MODELS,
        models + b'\r\n{"version":"0.32.0"}',
        b"HTTP/1.1 302 Found\r\nlocation: http://other/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\ncontent-length: 1\r\n\r\nx",
    ]


TARGET = Target(
    name="answer",
    check=check,
    seeds=seeds,
    tokens=(
        *(
            b"HTTP/1.0 |HTTP/1.1 200 |\r\n|\r\n\r\n|content-length: |transfer-encoding: chunked\r\n|0\r\n\r\n".split(
                b"|"
            )
        ),
        *(b"content-encoding: deflate\r\n|content-encoding: br\r\n|location: |set-cookie: a=b\r\n|304|204".split(b"|")),
        *(
            b'"data":[|"id":|"root":|"max_model_len":|"parent":|"version":|{}|[]|null|\\u0000|\\ud800|\x1f\x8b'.split(
                b"|"
            )
        ),
    ),
    allowed=(),
)
