"""One server's watch over time."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from exporter import watch
from exporter.errors import SourceError
from exporter.forecast.assessment import ForecastOptions
from exporter.reading import CacheConfig, EngineReading
from exporter.snapshot import SourceHealth
from exporter.watch import FORGET_SECONDS, GIVE_BACK_EVERY_SECONDS, GIVE_BACK_SECONDS, ModelFacts, Page, ServerWatch
from tests.support.expositions import exposition
from tests.support.readings import engines_of


@dataclass(frozen=True)
class Reading:
    """One engine's page."""

    engines: tuple[EngineReading, ...]
    names: dict[str, str] = field(default_factory=dict)


class Shown:
    """A server that is there until a time."""

    def __init__(self, clock: Callable[[], float], until: float) -> None:
        self._clock, self._until = clock, until
        self._engines = engines_of(exposition("vllm-0.32-one-engine-full.prom"))

    def read(self) -> Page:
        if self._clock() >= self._until:
            raise SourceError("vllm", "refused", "nobody listens")
        return Reading(tuple(replace(engine, time=self._clock()) for engine in self._engines))

    def close(self) -> None:
        pass


class Nothing:
    """Knows no model."""

    health: SourceHealth | None = None

    def facts(self, model_name: str, cache: CacheConfig | None, now: float) -> ModelFacts:
        return ModelFacts()


def test_what_is_freed_is_given_back_every_hour_and_after_an_engine_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The C library keeps freed memory; the container would be charged for it for ever."""
    given: list[float] = []
    now = 0.0
    monkeypatch.setattr(watch, "give_back", lambda: given.append(now))
    gone = 2.5 * GIVE_BACK_EVERY_SECONDS
    watched = ServerWatch(Shown(lambda: now, gone), Nothing(), ForecastOptions(), lambda: now)
    while now < 3 * GIVE_BACK_EVERY_SECONDS:
        watched.read()
        now += 20.0
    forgotten = gone + FORGET_SECONDS
    first, second, after = given
    assert (first, second) == (GIVE_BACK_EVERY_SECONDS, 2 * GIVE_BACK_EVERY_SECONDS)
    assert forgotten + GIVE_BACK_SECONDS - 20 <= after <= forgotten + GIVE_BACK_SECONDS + 20
