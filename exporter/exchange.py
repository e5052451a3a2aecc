"""A request and its answer, and who makes it: what a page and the server agree on."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """What a handler may know of a request: header names are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, status: int, text: str) -> "Response":
        """A plain answer of one line."""
        return cls(status, "text/plain; charset=utf-8", text.encode() + b"\n")


Handler = Callable[[Request], Response]


class Guard(Protocol):
    """Stands before the pages; its methods are called on the event loop and must not block."""

    @property
    def secure(self) -> bool:
        """Whether the pages are served by TLS."""

    def context(self) -> ssl.SSLContext | None:
        """What the next connection is secured with; `None`: plain HTTP."""

    async def refuse(self, request: Request, *, certified: bool) -> Response | None:
        """The answer for a request that may not pass."""
