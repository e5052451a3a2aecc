"""Histories replayed through the forecaster, engine by engine."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from exporter.backtest.scoring import Point
from exporter.backtest.thresholds import DETECTORS
from exporter.forecast.assessment import ForecastOptions, PoolView
from exporter.forecast.forecaster import EngineForecaster
from exporter.reading import EngineReading

FORECAST = "vllm-headroom"
LEAD_SECONDS, TAIL_SECONDS = 300.0, 120.0


@dataclass(frozen=True, slots=True)
class Moment:
    """What a timeline shows of one reading."""

    time: float
    usage: float | None
    waiting: float | None
    probability: float | None
    alarm: bool
    driver: str | None


@dataclass(slots=True)
class History:
    """One engine's history. Times are seconds since its first reading; `began` is that reading's own time."""

    name: str
    began: float = 0.0
    moments: list[Moment] = field(default_factory=list)
    events: list[float] = field(default_factory=list)
    """Times of preemptions: the recording's own account, or the readings at which the counter had risen."""
    intervals: list[float] = field(default_factory=list)
    detectors: dict[str, list[Point]] = field(default_factory=dict)

    @property
    def interval(self) -> float:
        """The usual seconds between readings."""
        ordered = sorted(self.intervals)
        return ordered[len(ordered) // 2] if ordered else 0.0


Reading = tuple[str, EngineReading, PoolView | None]
"""Which engine it is of, the reading, its pool."""


def replayed(readings: Iterable[Reading], options: Mapping[str, ForecastOptions] | ForecastOptions) -> list[History]:
    """Every engine's history with the forecast and the thresholds on it."""
    engines: dict[str, _Engine] = {}
    for name, reading, pool in readings:
        if name not in engines:
            engines[name] = _Engine(
                name, options if isinstance(options, ForecastOptions) else options[name], reading.time
            )
        engines[name].take(reading, pool)
    return [engine.finished() for engine in engines.values()]


class _Engine:
    def __init__(self, name: str, options: ForecastOptions, began: float) -> None:
        self._history = History(name, began)
        self._forecaster = EngineForecaster(options)
        self._horizon = options.page_horizon
        self._readings: list[tuple[float, float | None]] = []
        self._last: EngineReading | None = None

    def take(self, reading: EngineReading, pool: PoolView | None) -> None:
        history, last = self._history, self._last
        time = reading.time - history.began
        said = self._forecaster.observe(reading, pool)
        history.moments.append(
            Moment(
                time=time,
                usage=reading.kv_usage,
                waiting=reading.waiting,
                probability=said.probability.get(self._horizon),
                alarm=bool(said.predicted),
                driver=said.driver,
            )
        )
        if last is not None:
            history.intervals.append(reading.time - last.time)
            if (reading.preemptions or 0.0) > (last.preemptions or 0.0):
                history.events.append(time)
        self._last = reading

    def finished(self) -> History:
        history = self._history
        plain = [_bare(m.time, m.usage) for m in history.moments]
        history.detectors = {name: detect(plain) for name, detect in DETECTORS.items()}
        history.detectors[FORECAST] = [(m.time, m.probability or 0.0, m.alarm) for m in history.moments]
        return history


def _bare(time: float, usage: float | None) -> EngineReading:
    return EngineReading(time=time, model_name="", engine="", kv_usage=usage)


def around(history: History, onset: float) -> Iterator[Moment]:
    """What a timeline of one onset shows."""
    return (m for m in history.moments if onset - LEAD_SECONDS <= m.time <= onset + TAIL_SECONDS)
