"""The guard before our own pages: lets through who may read them, and follows its files as they change.

Certificates are renewed and Secrets are replaced while a process runs. So the files are looked at when somebody comes,
every few seconds at most, and at once on SIGHUP; what cannot be used is told in the log and changes nothing.
"""

import logging
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from exporter.errors import SettingsError
from exporter.exchange import Request, Response
from exporter.guard.passwords import BusyError
from exporter.guard.protection import GuardFiles, Protection, Stamp, read_protection, stamp

OPEN_PATHS = frozenset(("/healthz", "/readyz"))
"""For everybody who reaches the port: a kubelet's probe has neither certificate nor password. They tell no secret."""
LOOK_SECONDS = 2.0


class PageGuard:
    """Knows who may read the pages. Raises `SettingsError` when it is made of files that are not fit."""

    def __init__(self, files: GuardFiles, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = files
        self._clock = clock
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="bcrypt")
        self._reading = threading.Lock()
        self._seen: dict[Path, Stamp] = {}
        self._next_look = clock() + LOOK_SECONDS
        self._holds = read_protection(files, self._executor, self._seen)

    @property
    def secure(self) -> bool:
        """Whether the pages are served by TLS, which never changes while this runs."""
        return self._holds.context is not None

    @property
    def asks_credentials(self) -> bool:
        """Whether passwords or a token travel to the pages."""
        return self._holds.asks_credentials

    @property
    def summary(self) -> str:
        """What stands before the pages, in a few words."""
        holds = self._holds
        parts = ["TLS" if holds.context else "no TLS"]
        parts += ["client certificates"] if holds.certificate_required else []
        parts += ["passwords"] if holds.passwords else []
        parts += ["a bearer token"] if holds.token else []
        return ", ".join(parts)

    def context(self) -> ssl.SSLContext | None:
        """What the next connection is secured with; `None`: plain HTTP."""
        self._look()
        return self._holds.context

    async def refuse(self, request: Request, *, certified: bool) -> Response | None:
        """The answer for a request that may not pass; `certified`: its client showed a certificate that is believed."""
        if request.path in OPEN_PATHS:
            return None
        self._look()
        holds = self._holds
        if holds.certificate_required and not certified:
            return _refusal(403, "this page is for clients that show a certificate")
        if not holds.asks_credentials:
            return None
        try:
            if await holds.admits(request.headers.get("authorization", "")):
                return None
        except BusyError:
            return _refusal(429, "too many passwords wait to be checked", {"Retry-After": "1"})
        return _refusal(401, "unauthorized", {"WWW-Authenticate": holds.challenges})

    def reload(self) -> None:
        """Read every file anew, now; on a fault what held goes on to hold, and the log says why."""
        log = logging.getLogger(__name__)
        with self._reading:
            seen: dict[Path, Stamp] = {}
            try:
                new = read_protection(self._files, self._executor, seen)
                _same_kind(self._holds, new)
            except Exception as error:  # whatever it is, what held goes on to hold
                faults = (
                    error.faults if isinstance(error, SettingsError) else [f"reading failed: {type(error).__name__}"]
                )
                log.error("what protects the page stays as it was: %s", "; ".join(faults))
                self._seen = self._seen | seen  # what was tried is not tried again until it changes
                return
            self._holds, self._seen = new, seen
        log.info("what protects the page was read anew: %s", self.summary)

    def close(self) -> None:
        """Let go of the thread that checks passwords."""
        self._executor.shutdown(wait=False)

    def _look(self) -> None:
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        if any(stamp(path) != seen for path, seen in self._seen.items()):
            self.reload()


def _same_kind(old: Protection, new: Protection) -> None:
    """A file that was cut off or emptied must not open the page. Raises `SettingsError`."""
    if (old.context is None) != (new.context is None):
        raise SettingsError(["TLS is switched on or off by a restart only"])
    if old.asks and not new.asks:
        raise SettingsError(["the page would be open to everybody; that takes a restart"])


def _refusal(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    plain = Response.text(status, text)
    return Response(status, plain.content_type, plain.body, {"Cache-Control": "no-store", **(headers or {})})
