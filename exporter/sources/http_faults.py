"""What went wrong with an HTTP exchange: a bounded word for a label and a sentence for people.

The sentences are made here, of addresses and error numbers; they never repeat what a library says of a request, in
which a key could stand.
"""

import errno
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from exporter.errors import SourceError

REASONS: dict[type[Exception], str] = {
    httpx.TimeoutException: "timeout",
    httpx.ConnectTimeout: "timeout",
    httpx.ReadTimeout: "timeout",
    httpx.WriteTimeout: "timeout",
    httpx.PoolTimeout: "timeout",
    httpx.ConnectError: "unreachable",
    httpx.ProxyError: "unreachable",
    httpx.NetworkError: "disconnected",
    httpx.ReadError: "disconnected",
    httpx.WriteError: "disconnected",
    httpx.CloseError: "disconnected",
    httpx.TransportError: "disconnected",
    httpx.RequestError: "disconnected",
    httpx.HTTPError: "disconnected",
    httpx.ProtocolError: "not_http",
    httpx.RemoteProtocolError: "not_http",
    httpx.CookieConflict: "not_http",
    httpx.DecodingError: "garbled",
    httpx.TooManyRedirects: "redirect",
    httpx.HTTPStatusError: "http_other",
    httpx.InvalidURL: "bad_request",
    httpx.UnsupportedProtocol: "bad_request",
    httpx.LocalProtocolError: "bad_request",
    httpx.StreamError: "internal",
    httpx.StreamConsumed: "internal",
    httpx.StreamClosed: "internal",
    httpx.ResponseNotRead: "internal",
    httpx.RequestNotRead: "internal",
}
"""Every exception of httpx; `ConnectError` is told apart further by what caused it."""

_SENTENCES = {
    "timeout": "{url} did not answer in time",
    "refused": "{url} refused the connection; is the server running and listening there?",
    "dns": "the host of {url} cannot be looked up",
    "tls": "{url} offers no TLS connection that can be trusted ({detail})",
    "no_descriptors": "no connection to {url}: this process has too many open files",
    "unreachable": "{url} cannot be reached ({detail})",
    "disconnected": "{url} closed the connection before it had answered",
    "not_http": "{url} does not speak HTTP",
    "garbled": "{url} sent a body that cannot be decoded",
    "truncated": "{url} broke off in the middle of its answer",
    "bad_request": "{url} cannot be asked: the address or the key is not fit for an HTTP request",
}
_DISCONNECTED = "Server disconnected"
MAX_LOCATION = 200


@contextmanager
def faults(source: str, url: str) -> Iterator[None]:
    """Turn whatever httpx raises within into a `SourceError` of `source`."""
    try:
        yield
    except tuple(REASONS) as error:
        raise fault(source, url, error) from error


def fault(source: str, url: str, error: Exception) -> SourceError:
    """What `error`, raised by httpx while `url` was read, means."""
    reason = next((REASONS[kind] for kind in type(error).__mro__ if kind in REASONS), "internal")
    causes = list(_causes(error))
    if isinstance(error, httpx.ConnectError):
        reason = next(filter(None, map(_connect_reason, causes)), reason)
    elif isinstance(error, httpx.RemoteProtocolError) and str(error).startswith(_DISCONNECTED):
        reason = "disconnected"
    elif any(isinstance(cause, ssl.SSLError) for cause in causes):
        reason = "tls"
    sentence = _SENTENCES.get(reason, "{url} could not be read ({detail})")
    return SourceError(source, reason, sentence.format(url=url, detail=_detail(error, causes)))


def status_fault(source: str, url: str, response: httpx.Response) -> SourceError:
    """What an answer other than 200 means."""
    status = response.status_code
    if response.has_redirect_location or 300 <= status < 400:
        target = response.headers.get("location", "").partition("?")[0]
        where = f" to {target!a}" if 0 < len(target) <= MAX_LOCATION else ""  # a part of it could be a part of a key
        return SourceError(source, "redirect", f"{url} redirects{where}; redirects are not followed")
    if status in (401, 403):
        hint = "the API key is missing, wrong, or not allowed to read this"
        return SourceError(source, f"http_{status}", f"{url} answers {status}: {hint}")
    if status == 404:
        return SourceError(source, "http_404", f"{url} answers 404: there is no such page; is the base URL right?")
    reason = "http_5xx" if 500 <= status < 600 else "http_4xx" if 400 <= status < 500 else "http_other"
    return SourceError(source, reason, f"{url} answers {status}")


def _connect_reason(cause: BaseException) -> str | None:
    match cause:
        case ssl.SSLError():
            return "tls"
        case socket.gaierror() | UnicodeError():
            return "dns"
        case ConnectionRefusedError():
            return "refused"
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            return "no_descriptors"
        case _:
            return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _detail(error: Exception, causes: list[BaseException]) -> str:
    for cause in causes:
        match cause:
            case ssl.SSLCertVerificationError(verify_message=str(message)) if message:
                return message
            case ssl.SSLError(reason=str(reason)) if reason:
                return reason.lower().replace("_", " ")
            case socket.gaierror(errno=int(number)):
                return os.strerror(number) if number > 0 else "name lookup failed"
            case OSError(errno=int(number)):
                return os.strerror(number)
    return type(error).__name__
