"""One vLLM server over time: page → engines → capacity → assessment."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from exporter.capacity import capacity_of, headroom_of, pool_of, used_blocks_of
from exporter.errors import SourceError, unexpected
from exporter.forecast.assessment import Assessment, ForecastOptions, PoolView
from exporter.forecast.effort import Effort
from exporter.forecast.forecaster import EngineForecaster
from exporter.heap import give_back
from exporter.memory import Serving
from exporter.reading import CacheConfig, EngineReading
from exporter.snapshot import Capacity, EngineStatus, Headroom, SourceHealth

if TYPE_CHECKING:
    from exporter.kv.live import LiveArithmetic

EngineKey = tuple[str, str]

FORGET_SECONDS = 900.0
"""How long an engine that is gone from the page keeps its place, in state `unknown`."""
GIVE_BACK_SECONDS = 60.0
"""After an engine was forgotten, and with it what the snapshots before and the parser still held of it."""
GIVE_BACK_EVERY_SECONDS = 3600.0
"""What is freed leaves holes that the C library keeps: some MiB in an hour, if none are given back."""
MAX_ENGINES = 256
"""Engines of one server that are followed or remembered; a page that invents more is cut here."""


class Page(Protocol):
    """What one GET of the metrics page gave."""

    @property
    def engines(self) -> tuple[EngineReading, ...]:
        """One reading per model and engine."""

    @property
    def names(self) -> Mapping[str, str]:
        """Concept → metric name."""


class PageSource(Protocol):
    """A vLLM server's metrics page; raises `SourceError` when it cannot be had."""

    def read(self) -> Page:
        """GET the page once."""

    def close(self) -> None:
        """Let go of the connection."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a served model beyond the page."""

    max_model_len: int | None = None
    arithmetic: "LiveArithmetic | None" = None
    next_allocation_bytes: Mapping[str, int] = field(default_factory=dict)


class Models(Protocol):
    """Knows the served models; never raises."""

    def facts(self, model_name: str, cache: CacheConfig | None, now: float) -> ModelFacts:
        """What is known of one."""

    @property
    def health(self) -> SourceHealth | None:
        """Whether architectures are found; `None` before the first question."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One server at one tick."""

    engines: tuple[EngineStatus, ...]
    serving: Serving
    sources: tuple[SourceHealth, ...]


class ServerWatch:
    """Follows one server. `name` tells it apart where several are watched; `models` knows what they serve.

    `servers` is how many this process watches: their engines share what the forecast may cost.
    """

    def __init__(
        self,
        source: PageSource,
        models: Models,
        options: ForecastOptions,
        clock: Callable[[], float],
        name: str = "",
        servers: int = 1,
    ) -> None:
        self.name = name
        self._servers = servers
        self._source = source
        self._models = models
        self._options = options
        self._clock = clock
        self._forecasters: dict[EngineKey, EngineForecaster] = {}
        self._last: dict[EngineKey, EngineStatus] = {}
        self._give_back_at = clock() + GIVE_BACK_EVERY_SECONDS
        self._last_success: float | None = None
        self._last_reason = ""
        self._names: Mapping[str, str] = {}

    def read(self) -> ServerStatus:
        """Read the page once and assess every engine on it; a page that cannot be had leaves every engine unknown."""
        started = self._clock()
        try:
            return self._followed(started)
        except SourceError as error:
            fault = error
        except Exception as error:  # a fault of ours must not leave the last reading standing as if it were this one
            logging.getLogger(__name__).debug("reading %s failed", self.name, exc_info=True)
            fault = unexpected("vllm", error)
        engines = self._without(self._clock(), str(fault))
        return ServerStatus(engines, Serving(), self._sources(started, fault.reason, str(fault)))

    def _followed(self, started: float) -> ServerStatus:
        page = self._source.read()
        now = self._clock()
        self._last_success = now
        self._names = page.names
        readings = page.engines[:MAX_ENGINES]
        engines = len(readings) * self._servers
        statuses = tuple(
            self._status(reading, Effort.among(engines, number)) for number, reading in enumerate(readings)
        )
        self._last |= {_key(status.reading): status for status in statuses}
        gone = self._without(now, "the engine is no longer on the page", {_key(reading) for reading in readings})
        return ServerStatus(statuses + gone, self._serving(statuses), self._sources(started, "ok", ""))

    def close(self) -> None:
        """Let go of the server's connection."""
        self._source.close()

    def _serving(self, statuses: Sequence[EngineStatus]) -> Serving:
        readings = [status.reading for status in statuses]
        allocations: dict[str, int] = {}
        for reading in readings:
            allocations |= self._models.facts(reading.model_name, reading.cache, reading.time).next_allocation_bytes
        offloading = [reading.cache.kv_offloading_gib for reading in readings if reading.cache is not None]
        known = [size for size in offloading if size is not None]
        shares = {reading.cache.gpu_memory_utilization for reading in readings if reading.cache is not None}
        weights = {status.capacity.weight_bytes for status in statuses}
        return Serving(
            True,
            allocations,
            sum(known) if known else None,
            shares.pop() if len(shares) == 1 else None,
            weights.pop() if len(weights) == 1 else None,
        )

    def _status(self, reading: EngineReading, effort: Effort) -> EngineStatus:
        facts = self._models.facts(reading.model_name, reading.cache, reading.time)
        capacity = capacity_of(reading.cache, facts.arithmetic, facts.max_model_len)
        pool = pool_of(reading.cache, capacity, facts.arithmetic)
        forecaster = self._forecasters.get(_key(reading))
        if forecaster is None:
            options = replace(self._options, max_model_len=self._options.max_model_len or facts.max_model_len)
            forecaster = self._forecasters[_key(reading)] = EngineForecaster(options)
        return EngineStatus(
            server=self.name,
            reading=reading,
            capacity=capacity,
            headroom=headroom_of(reading, capacity, pool),
            used_blocks=used_blocks_of(reading, capacity),
            assessment=self._assess(forecaster, reading, pool, effort),
        )

    def _assess(
        self, forecaster: EngineForecaster, reading: EngineReading, pool: PoolView | None, effort: Effort
    ) -> Assessment:
        """The forecast of one engine; a fault of ours in it costs this assessment alone."""
        try:
            return forecaster.observe(reading, pool, effort)
        except Exception as error:
            reason = f"the forecast failed and starts anew: {type(error).__name__}"
            before = self._last.get(_key(reading))
            scored = before.assessment.forecasts if before is not None else {}
            if before is None or before.assessment.reason != reason:  # it may fail at every reading: said once
                logging.getLogger(__name__).exception("the forecast of engine %s failed", reading.engine)
            self._forecasters[_key(reading)] = EngineForecaster(forecaster.options, scored)
            return _unknown_assessment(reading, reading.time, reason, scored)

    def _without(self, now: float, reason: str, seen: Collection[EngineKey] = ()) -> tuple[EngineStatus, ...]:
        """The engines that were there before and are not now: unknown, with nothing but their counters left."""
        gone = sorted((key for key in self._last if key not in seen), key=lambda key: self._last[key].reading.time)
        too_many = len(self._last) - MAX_ENGINES
        for number, key in enumerate(gone):
            if number < too_many or now - self._last[key].reading.time > FORGET_SECONDS:
                del self._last[key]
        for key in self._forecasters.keys() - self._last.keys():
            del self._forecasters[key]
            self._give_back_at = now + GIVE_BACK_SECONDS
        if now >= self._give_back_at:
            self._give_back_at = now + GIVE_BACK_EVERY_SECONDS
            give_back()
        return tuple(unknown_status(status, now, reason) for key, status in self._last.items() if key not in seen)

    def _sources(self, started: float, reason: str, message: str) -> tuple[SourceHealth, ...]:
        if reason != self._last_reason:
            log = logging.getLogger(__name__)
            where = f" {self.name}" if self.name else ""
            if reason == "ok":
                log.info("vLLM%s: its page is read", where)
            else:
                log.warning("vLLM%s: %s", where, message)
            self._last_reason = reason
        page = SourceHealth(
            source="vllm",
            server=self.name,
            up=reason == "ok",
            reason=reason,
            message=message,
            duration_seconds=self._clock() - started,
            last_success=self._last_success,
            names=self._names if reason == "ok" else {},
        )
        models = self._models.health
        return (page,) if models is None else (page, models)


def _key(reading: EngineReading) -> EngineKey:
    return reading.model_name, reading.engine


def unknown_status(status: EngineStatus, now: float, reason: str) -> EngineStatus:
    """An engine of which nothing is known now, with nothing but its counters left."""
    seen = status.reading
    reading = EngineReading(time=seen.time, model_name=seen.model_name, engine=seen.engine)
    assessment = _unknown_assessment(reading, now, reason, status.assessment.forecasts)
    return EngineStatus(status.server, reading, Capacity(), Headroom(), None, assessment)


def _unknown_assessment(reading: EngineReading, now: float, reason: str, forecasts: Mapping[str, int]) -> Assessment:
    return Assessment(
        time=now,
        model_name=reading.model_name,
        engine=reading.engine,
        state="unknown",
        reason=reason,
        forecasts=forecasts,
    )
