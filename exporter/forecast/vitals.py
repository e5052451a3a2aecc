"""Rules about an engine's vital signs that come before any forecast.

An engine that sleeps is not at risk; one that serves pages but does nothing is stalled, whatever its gauges
say; one whose gauges or counters contradict each other is unknown. Idle is none of these.
"""

from exporter.forecast.alarm import Verdict
from exporter.reading import EngineReading

STALL_SECONDS = 120.0
"""No request of a healthy engine goes without a token that long; a long prefill moves the iteration counter."""
SUSPECT_SECONDS = 60.0
LEAK_SECONDS = 600.0


class Vitals:
    """Remembers since when an engine has shown a sign of trouble."""

    def __init__(self) -> None:
        """Start in good health."""
        self._work: tuple[float | None, ...] | None = None
        self._moved_at: float | None = None
        self._weightless_since: float | None = None
        self._leaking_since: float | None = None

    def observe(self, reading: EngineReading, sawtooth: bool) -> Verdict | None:
        """The verdict that stands in for a forecast, or `None` when a forecast can be made."""
        time, running, waiting = reading.time, reading.running, reading.waiting or 0.0
        self._follow_work(reading)
        if reading.sleep_state not in (None, "awake"):
            self._moved_at = time
            return Verdict("asleep", f"the engine sleeps ({reading.sleep_state}): it holds no KV and is not at risk")
        if reading.kv_usage is None or running is None:
            return Verdict("unknown", "the page shows no KV usage or no number of running requests")
        if sawtooth:
            return Verdict("unknown", "counters jump between levels: several processes answer in turn, no rate is true")
        if running + waiting > 0 and self._moved_at is not None and time - self._moved_at >= STALL_SECONDS:
            return Verdict("stalled", _stall(running, waiting, reading.kv_usage, time - self._moved_at))
        self._weightless_since = _since(self._weightless_since, running > 0 and reading.kv_usage == 0, time)
        if self._weightless_since is not None and time - self._weightless_since >= SUSPECT_SECONDS:
            return Verdict("unknown", f"the usage gauge is suspect: it reads exactly 0 while {running:g} requests run")
        return None

    def leaking(self, reading: EngineReading) -> Verdict | None:
        """Blocks held for minutes while no request lives: aborted transfers do that."""
        held = not reading.running and not reading.waiting and (reading.kv_usage or 0.0) > 0.01
        self._leaking_since = _since(self._leaking_since, held, reading.time)
        if self._leaking_since is None or reading.time - self._leaking_since < LEAK_SECONDS:
            return None
        return Verdict(
            "watch", f"{reading.kv_usage:.0%} of the KV pool is held while no request lives: blocks have leaked"
        )

    def _follow_work(self, reading: EngineReading) -> None:
        steps = reading.iteration_tokens.count if reading.iteration_tokens is not None else None
        work = (reading.generation_tokens, reading.prompt_tokens, reading.finished, steps)
        idle = not reading.running and not reading.waiting
        if work != self._work or idle or all(part is None for part in work):
            self._work, self._moved_at = work, reading.time


def _since(before: float | None, holds: bool, time: float) -> float | None:
    if not holds:
        return None
    return time if before is None else before


def _stall(running: float, waiting: float, usage: float, seconds: float) -> str:
    if running > 0:
        return f"{running:g} requests are said to run, but nothing has been computed for {seconds:.0f} s"
    if usage < 0.01:
        return (
            f"{waiting:g} requests wait, none runs and the pool is empty for {seconds:.0f} s: "
            "the first one may need more KV than the pool holds"
        )
    return f"{waiting:g} requests wait, none runs and no token is generated for {seconds:.0f} s"
