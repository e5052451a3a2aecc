"""What can still be said when no tick has ended for too long: who was there, and that nothing is known of them."""

from collections.abc import Callable
from dataclasses import replace

from exporter.snapshot import Snapshot, SourceHealth
from exporter.watch import unknown_status

AGAIN_SECONDS = 1.0


class Freshness:
    """The latest snapshot while it is fresh; a page must not show as present what was read long ago.

    `stale_seconds` is how old a tick may be; `clock` is the snapshots'.
    """

    def __init__(self, latest: Callable[[], Snapshot | None], clock: Callable[[], float], stale_seconds: float) -> None:
        self._latest = latest
        self._clock = clock
        self._stale_seconds = stale_seconds
        self._aged: tuple[Snapshot, float, Snapshot] | None = None

    def __call__(self) -> Snapshot | None:
        """The snapshot to show; the same object until there is another one to show."""
        snapshot, now = self._latest(), self._clock()
        if snapshot is None or now - snapshot.time <= self._stale_seconds:
            return snapshot
        aged = self._aged
        if aged is None or aged[0] is not snapshot or now - aged[1] >= AGAIN_SECONDS:
            aged = self._aged = snapshot, now, without_readings(snapshot, now)
        return aged[2]


def without_readings(snapshot: Snapshot, now: float) -> Snapshot:
    """What is left of a snapshot whose readings no longer hold: engines with their counters, and ages."""
    late = now - snapshot.time
    reason = f"no reading has ended for {late:.0f} s"
    return replace(
        snapshot,
        engines=tuple(unknown_status(status, now, reason) for status in snapshot.engines),
        devices=(),
        host=None,
        sources=tuple(_stale(health, late, reason) for health in snapshot.sources),
    )


def _stale(health: SourceHealth, late: float, reason: str) -> SourceHealth:
    # The tick's own time stays, by which readiness goes: the age since the last success grows here.
    last = None if health.last_success is None else health.last_success - late
    return replace(health, up=False, reason="stale", message=reason, duration_seconds=None, last_success=last, names={})
