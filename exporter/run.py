"""The daemon: build every part from the settings, tick until told to stop."""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from exporter import __version__, logs
from exporter.assembly import build_monitor
from exporter.descriptors import allow_more
from exporter.freshness import Freshness
from exporter.history import History
from exporter.monitor import Monitor
from exporter.pace import Pace, SteadyClock
from exporter.routes import Routes
from exporter.server import HttpServer

if TYPE_CHECKING:
    from exporter.guard.guard import PageGuard
    from exporter.settings import Settings

STALE_TICKS = 3
"""The last tick is fresh while it is younger than this many intervals and one page's longest wait."""

TURN_SECONDS = 0.0005
"""How long a thread may keep the interpreter from another: a tick must not wait 5 ms, Python's own measure, each time
it comes back from the system while a crowd scrapes, nor a scrape while a tick works."""

SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))

PATIENCE_SECONDS = 0.6
"""How long a tick is waited for at the end: SIGTERM ends the process within a second whatever its sources do."""


class Daemon:
    """A monitor that ticks in a thread and the server that shows what it saw; a stoppable object.

    `speed` says how many seconds of `clock` pass in a real one. Raises `UsageError` where the settings name files for
    the protection of the page that are not fit.
    """

    def __init__(
        self,
        monitor: Monitor,
        settings: "Settings",
        clock: Callable[[], float] = time.monotonic,
        *,
        speed: float = 1.0,
    ) -> None:
        host, _, port = settings.listen.rpartition(":")
        stale = STALE_TICKS * settings.poll_interval_seconds + settings.vllm_timeout_seconds
        self.monitor = monitor
        self.history = History()
        self.guard = guard_of(settings)
        latest = Freshness(lambda: monitor.latest, clock, stale)
        routes = Routes(latest, self.history, clock, stale)
        self.server = HttpServer(host, int(port), routes, guard=self.guard)
        self._interval = settings.poll_interval_seconds
        self._clock = clock
        self._speed = speed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tick", daemon=True)
        self._fault = ""
        """What the last tick ran into; said once."""

    def __enter__(self) -> "Daemon":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where the pages are."""
        return self.server.url

    def start(self) -> None:
        """Bind the port, then begin to tick; raises `UsageError` when the port is taken."""
        self.server.start()
        self._thread.start()

    def close(self) -> None:
        """Stop serving at once and ticking after the present tick; one that waits for its source is left behind."""
        self._stop.set()
        self.server.close()
        if self.guard is not None:
            self.guard.close()
        self._thread.join(timeout=PATIENCE_SECONDS)
        if not self._thread.is_alive():
            self.monitor.close()

    def reload(self) -> None:
        """Read anew what protects the page."""
        if self.guard is None:
            logging.getLogger(__name__).info("told to reload: no file protects the page, so there is nothing to read")
        else:
            self.guard.reload()

    def _run(self) -> None:
        pace = Pace(self._interval, self._clock())
        while not self._stop.is_set():
            # Without memory even the log, or the wait, may fail: this thread must outlive that.
            try:
                self._tick()
                self._stop.wait(pace.seconds(self._clock()) / self._speed)
            except Exception:
                time.sleep(self._interval)

    def _tick(self) -> None:
        try:
            self.history.add(self.monitor.tick())
            self._fault = ""
        except Exception as error:  # whatever a tick runs into, the next one is tried
            fault, self._fault = self._fault, f"{type(error).__name__}: {error}"
            if fault != self._fault:
                logging.getLogger(__name__).exception("a tick failed")


def guard_of(settings: "Settings") -> "PageGuard | None":
    """What stands before our own pages; `None`: everybody who reaches the port may read them."""
    named = (settings.web_config_file, settings.page_tls_cert_file, settings.page_tls_key_file)
    if not any((*named, settings.page_bearer_token_file)):
        return None
    from exporter.guard.guard import PageGuard  # most sidecars have none, and need not hold it
    from exporter.guard.protection import GuardFiles

    return PageGuard(GuardFiles(*named, settings.page_bearer_token_file))


def on_loopback(listen: str) -> bool:
    """Whether HOST:PORT can be reached from this machine alone."""
    host = listen.rpartition(":")[0].strip("[]")
    return host == "localhost" or host == "::1" or host.startswith("127.")


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keeps signals until they are waited for, in every thread that is begun here.

    A handler is not run while its thread waits for a lock, if the signal came the moment before it began to wait.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        while signal.sigtimedwait(SIGNALS, 0) is not None:
            pass  # told twice
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(settings: "Settings") -> int:
    """Run until SIGTERM or SIGINT; SIGHUP reads the files anew that protect the page.

    Exit code 0 when told to stop; raises `UsageError` where the port is taken or a file is not fit.
    """
    sys.setswitchinterval(TURN_SECONDS)
    allow_more()
    logs.start(settings.log_level, settings.log_format)
    log = logging.getLogger(__name__)
    clock = SteadyClock(time.monotonic)
    with _signals_kept(), Daemon(build_monitor(settings, clock), settings, clock) as daemon:
        log.info("vllm-headroom %s watches %s, serves %s", __version__, ", ".join(settings.vllm_url), daemon.url)
        if daemon.guard is not None:
            log.info("the page is protected by: %s", daemon.guard.summary)
            if daemon.guard.asks_credentials and not daemon.guard.secure and not on_loopback(settings.listen):
                log.warning("what opens the page goes over the network unencrypted: PAGE_TLS_CERT_FILE serves HTTPS")
        while signal.sigwait(SIGNALS) == signal.SIGHUP:
            daemon.reload()
    log.info("stopped")
    return 0
