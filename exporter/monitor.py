"""One tick: every source is read once, each failing alone, and what they said becomes one snapshot."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from exporter.card_levers import with_card_levers
from exporter.errand import Errand
from exporter.errors import SourceError, unexpected
from exporter.memory import Serving, together
from exporter.snapshot import DeviceStatus, HostStatus, Snapshot, SourceHealth
from exporter.watch import ServerStatus

Answer = TypeVar("Answer")


class Watch(Protocol):
    """A server that is followed."""

    def read(self) -> ServerStatus:
        """Its engines, what it is doing, and how its sources fared."""

    def close(self) -> None:
        """Let go of its connection."""


class Devices(Protocol):
    """The server's GPUs, with their risk; raises `SourceError`."""

    def read(self, now: float, serving: Serving) -> tuple[DeviceStatus, ...]:
        """Every GPU once."""

    def close(self) -> None:
        """Let go of the driver."""


class Host(Protocol):
    """The container's memory, with its risk; raises `SourceError`."""

    def read(self, now: float, serving: Serving) -> HostStatus:
        """The container once."""

    def close(self) -> None:
        """Read no more."""


class Monitor:
    """Ticks. `latest` is the last whole snapshot; it is replaced at once, so any thread may read it."""

    def __init__(
        self,
        watches: Sequence[Watch],
        devices: Devices | None,
        host: Host | None,
        clock: Callable[[], float],
        wall: Callable[[], float],
        ranks: int = 1,
    ) -> None:
        self.latest: Snapshot | None = None
        self._watches = tuple(watches)
        self._devices = devices
        self._host = host
        self._clock = clock
        self._wall = wall
        self._ranks = ranks
        self._ticks = 0
        self._health: dict[str, SourceHealth] = {}

    def tick(self) -> Snapshot:
        """Read everything once and publish the snapshot."""
        started = self._clock()
        servers = self._servers()
        serving = together([server.serving for server in servers])
        devices, host = self._devices, self._host
        gpus = self._ask("nvml", lambda now: devices.read(now, serving)) if devices is not None else None
        container = self._ask("host", lambda now: host.read(now, serving)) if host is not None else None
        engines = [status for server in servers for status in server.engines]
        self._ticks += 1
        ended = self._clock()
        self.latest = Snapshot(
            time=ended,
            wall_time=self._wall(),
            duration_seconds=ended - started,
            ticks=self._ticks,
            engines=with_card_levers(engines, gpus or (), self._ranks),
            devices=gpus or (),
            host=container,
            sources=(*(health for server in servers for health in server.sources), *self._health.values()),
        )
        return self.latest

    def close(self) -> None:
        """Let go of connections and the driver; no tick may be under way."""
        for watch in self._watches:
            watch.close()
        if self._devices is not None:
            self._devices.close()
        if self._host is not None:
            self._host.close()

    def _servers(self) -> list[ServerStatus]:
        """Every server; several at once, so that a slow one does not make the others' readings late."""
        if len(self._watches) == 1:
            return [self._watches[0].read()]
        errands = [_begun(watch) for watch in self._watches]
        return [_told(watch, errand) for watch, errand in zip(self._watches, errands, strict=True)]

    def _ask(self, source: str, read: Callable[[float], Answer]) -> Answer | None:
        """Read one source; what it raises is its own health and nobody else's."""
        started = self._clock()
        before = self._health.get(source)
        answer, reason, message = None, "ok", ""
        try:
            answer = read(started)
        except SourceError as error:
            reason, message = error.reason, str(error)
        except Exception as error:  # a fault of ours in one source must not cost the others
            logging.getLogger(__name__).debug("reading %s failed", source, exc_info=True)
            fault = unexpected(source, error)
            reason, message = fault.reason, str(fault)
        if before is None or before.reason != reason:
            log = logging.getLogger(__name__)
            log.info("%s: read", source) if reason == "ok" else log.warning("%s: %s", source, message)
        ended = self._clock()
        last = ended if reason == "ok" else before.last_success if before else None
        self._health[source] = SourceHealth(source, "", reason == "ok", reason, message, ended - started, last)
        return answer


def _begun(watch: Watch) -> Errand[ServerStatus] | None:
    try:
        return Errand(watch.read)
    except RuntimeError:  # no thread is to be had
        return None


def _told(watch: Watch, errand: Errand[ServerStatus] | None) -> ServerStatus:
    if errand is not None:
        with contextlib.suppress(RuntimeError):  # the thread never began
            return errand.answer()
    return watch.read()
