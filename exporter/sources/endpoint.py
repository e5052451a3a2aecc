"""One HTTP server that is read and never trusted: bounded time, bounded size, no redirect, no proxy, no cookie."""

import contextlib
import ssl
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path

import httpx

import exporter
from exporter.errors import SettingsError, SourceError
from exporter.sources.deadline import Clock, DeadlineTransport
from exporter.sources.http_faults import faults, status_fault

_CHUNK_BYTES = 65_536
_KEY_LIMIT_BYTES = 8_192


@dataclass(frozen=True, slots=True)
class Access:
    """How a server is reached, and how much of this process it may take."""

    timeout_seconds: float = 5.0
    """For a whole exchange, from the name lookup to the last byte."""
    body_limit_bytes: int = 8 * 1024 * 1024
    """Of a body after decompression."""
    api_key_file: Path | None = None
    """Read anew for every request, so that a key may be replaced while this runs."""
    tls_ca_file: Path | None = None
    tls_skip_verify: bool = False


class Endpoint:
    """GET requests to one base URL over a kept connection; for one thread."""

    def __init__(
        self,
        source: str,
        base_url: str,
        access: Access,
        transport: httpx.BaseTransport | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`source` names the errors; `transport` replaces the network. Raises `SettingsError` for an unfit CA file."""
        self.source = source
        self.base_url = base_url.rstrip("/")
        self._access = access
        self._clock = clock
        self._context = _tls_context(access) if transport is None and self.base_url.startswith("https:") else None
        self._given = transport
        self._client = self._connected()
        self._last: tuple[tuple[str, str, str | None], httpx.Request] | None = None

    @contextmanager
    def get(self, path: str, accept: str, limit_bytes: int | None = None) -> Iterator["Body"]:
        """The body of a 200 answer, to be read within the context. Raises `SourceError` for everything else."""
        url = self.base_url + path
        key = self._key()
        try:
            with (
                faults(self.source, url),
                self._renewed(),
                closing(self._client.send(self._asked(url, accept, key), stream=True)) as response,
            ):
                if response.status_code != 200:
                    raise status_fault(self.source, url, response)
                yield Body(self.source, url, response, limit_bytes or self._access.body_limit_bytes, self._clock())
        except SourceError as error:
            # A server may send the key back, in an address it redirects to or wherever else a message quotes it.
            if key is None or key not in str(error):
                raise
            raise SourceError(error.source, error.reason, str(error).replace(key, "***")) from None

    def _asked(self, url: str, accept: str, key: str | None) -> httpx.Request:
        """The request for a URL, a content type and with a key: the last one again, if it is the same."""
        what = url, accept, key
        if self._last is None or self._last[0] != what:
            headers = {"Accept": accept} if key is None else {"Accept": accept, "Authorization": f"Bearer {key}"}
            self._last = what, self._client.build_request("GET", url, headers=headers)
        return self._last[1]

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def _connected(self) -> httpx.Client:
        return httpx.Client(
            transport=self._given or DeadlineTransport(self._access.timeout_seconds, self._context),
            timeout=self._access.timeout_seconds,
            trust_env=False,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            headers={"User-Agent": f"vllm-headroom/{exporter.__version__}", "Accept-Encoding": "identity"},
        )

    @contextmanager
    def _renewed(self) -> Iterator[None]:
        """Begin anew after what no server can do: without memory the pool may keep its one connection as taken."""
        try:
            yield
        except Exception as error:
            if isinstance(error, httpx.PoolTimeout) or not isinstance(error, SourceError | httpx.HTTPError):
                broken, self._client = self._client, self._connected()
                with contextlib.suppress(Exception):
                    broken.close()
            raise

    def _key(self) -> str | None:
        path = self._access.api_key_file
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                key = file.read(_KEY_LIMIT_BYTES).strip().decode("ascii")
        except OSError as error:
            fault = f"the key file {path} cannot be read: {error.strerror}"
            raise SourceError(self.source, "key_unreadable", fault) from None
        except UnicodeDecodeError:
            key = ""
        if not key or not key.isprintable() or " " in key:
            fault = f"the key file {path} must hold one key of printable ASCII characters without spaces"
            raise SourceError(self.source, "key_unreadable", fault)
        return key


class Body:
    """The bytes of an answer as they arrive, decompressed; cut off at the limit by a `SourceError`.

    `answered` is the clock's time at which the answer began; `size` counts the bytes so far.
    """

    def __init__(self, source: str, url: str, response: httpx.Response, limit_bytes: int, answered: float) -> None:
        self.url = url
        self.answered = answered
        self.size = 0
        self.content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._source = source
        self._response = response
        self._limit = limit_bytes

    def __iter__(self) -> Iterator[bytes]:
        last = b""
        for chunk in self._decoded():
            self.size += len(chunk)
            if self.size > self._limit:
                fault = f"{self.url} sent more than the {self._limit} bytes that are allowed (BODY_LIMIT_BYTES)"
                raise SourceError(self._source, "too_large", fault)
            yield chunk
            last = chunk[-1:] or last
        # Nothing but the line feed tells that a body which ends with its connection is whole.
        framed = {"content-length", "transfer-encoding"} & self._response.headers.keys()
        if last not in (b"", b"\n") and not framed:
            raise self._fault("truncated", "broke off in the middle of a line")

    def _decoded(self) -> Iterator[bytes]:
        match self._response.headers.get("content-encoding", "identity").strip().lower():
            case "" | "identity":
                return self._received()
            case "gzip" | "x-gzip" | "deflate":
                return self._inflated()
            case _:
                raise self._fault("garbled", "uses a content encoding that was not asked for")

    def _received(self) -> Iterator[bytes]:
        try:
            yield from self._response.iter_raw()
        except (httpx.ProtocolError, httpx.NetworkError) as error:
            raise self._fault("truncated", "broke off in the middle of its answer") from error

    def _inflated(self) -> Iterator[bytes]:
        """Decompress in bounded steps: a few bytes may stand for gigabytes."""
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        try:
            for data in self._received():
                while data and not inflate.eof:
                    yield inflate.decompress(data, _CHUNK_BYTES)
                    data = inflate.unconsumed_tail
            while not inflate.eof and (rest := inflate.decompress(b"", _CHUNK_BYTES)):
                yield rest
        except zlib.error:
            raise self._fault("garbled", "sent a body that cannot be decompressed") from None
        if not inflate.eof:
            raise self._fault("truncated", "broke off in the middle of a compressed answer")

    def _fault(self, reason: str, what: str) -> SourceError:
        return SourceError(self._source, reason, f"{self.url} {what}")


def _tls_context(access: Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.tls_ca_file)
    except OSError as error:  # ssl.SSLError is one
        rule = "must be a PEM bundle of CA certificates"
        why = error.strerror or type(error).__name__
        raise SettingsError([f"VLLM_HEADROOM_TLS_CA_FILE={str(access.tls_ca_file)!r}: {rule} ({why})"]) from None
    if access.tls_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
