"""Servers that are good, go wrong in one way, and are good again: all ways at once, under one daemon."""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import trustme

from tests.support import pages
from tests.support.expositions import exposition
from tests.support.loopback import Behaviour, PageServer

PAGE = exposition("vllm-0.32-one-engine-full.prom")
LIMIT_BYTES = 2**20
GONE = "headroom-test.invalid"
"""A name that the name service of the test knows for a while."""


@dataclass
class Trouble:
    """One way to go wrong: `inflict` begins it and `mend` ends it."""

    reason: str
    inflict: Callable[[PageServer], None]
    mend: Callable[[PageServer], None]
    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"


@dataclass
class Names:
    """The name service: whether it knows `GONE` now."""

    known: bool = True
    asked: Callable[..., Any] = field(default=socket.getaddrinfo)

    def __call__(self, host: str, port: int, *rest: object, **more: object) -> Any:
        if host != GONE:
            return self.asked(host, port, *rest, **more)
        if not self.known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return self.asked("127.0.0.1", port, *rest, **more)


def good(server: PageServer) -> None:
    """Answer as vLLM does."""
    server.behaviour = pages.answer(PAGE)


def behaving(reason: str, behaviour: Behaviour) -> Trouble:
    """A server that answers, but wrongly."""

    def inflict(server: PageServer) -> None:
        server.behaviour = behaviour

    return Trouble(reason, inflict, good)


def refusing() -> Trouble:
    """The server ends, and starts again on its port."""

    def mend(server: PageServer) -> None:
        server.__init__(pages.answer(PAGE), port=server.port)  # type: ignore[misc] # the same object serves anew

    return Trouble("refused", PageServer.close, mend)


def expiring(authority: trustme.CA) -> Trouble:
    """The certificate expires, and is replaced."""
    now = datetime.now(UTC)

    def certify(context: ssl.SSLContext, last: datetime) -> None:
        first = last - timedelta(days=2)
        authority.issue_cert("127.0.0.1", not_before=first, not_after=last).configure_cert(context)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certify(context, now + timedelta(days=1))

    def inflict(server: PageServer) -> None:
        certify(context, now - timedelta(days=1))
        server.drop_connections()

    def mend(_server: PageServer) -> None:
        certify(context, now + timedelta(days=1))

    return Trouble("tls", inflict, mend, tls=context)


def forgotten(names: Names) -> Trouble:
    """The name service no longer knows the host, and does again."""

    def inflict(server: PageServer) -> None:
        names.known = False
        server.drop_connections()

    def mend(_server: PageServer) -> None:
        names.known = True

    return Trouble("dns", inflict, mend, host=GONE)


def troubles(names: Names, authority: trustme.CA) -> dict[str, Trouble]:
    """Every way in which a page can go wrong on its way here, by a name of its own."""
    return {
        "refused": refusing(),
        "slow": behaving("timeout", pages.slow(pages.answer(PAGE), 30)),
        "silent": behaving("timeout", pages.silence()),
        "hangs mid-body": behaving("timeout", pages.hang(PAGE, 2000)),
        "drips": behaving("timeout", pages.trickle(PAGE)),
        "drips its headers": behaving("timeout", pages.trickle(PAGE, headers_too=True)),
        "garbage": behaving("not_metrics", pages.garbage()),
        "truncated": behaving("truncated", pages.truncated(PAGE, 20_000)),
        "huge": behaving("too_large", pages.endless(100_000_000)),
        "gzip bomb": behaving("too_large", pages.gzip_bomb(20 * LIMIT_BYTES)),
        "wrong content type": behaving("not_metrics", pages.html()),
        "redirect loop": behaving("redirect", pages.redirect("/metrics")),
        "TLS expired": expiring(authority),
        "DNS gone": forgotten(names),
        "hangs up": behaving("disconnected", pages.disconnect()),
        "fails": behaving("http_5xx", pages.status(500)),
    }


def serve(trouble: Trouble) -> PageServer:
    """A server that is good, and can go wrong in this way."""
    return PageServer(pages.answer(PAGE), tls=trouble.tls)


def url(trouble: Trouble, server: PageServer) -> str:
    """Where the daemon finds it."""
    return f"{'https' if trouble.tls else 'http'}://{trouble.host}:{server.port}"


def stop(server: PageServer) -> None:
    """End it, whatever state it is in."""
    with suppress(OSError):
        server.close()
