"""Readings in, assessments out: one engine's forecast."""

from exporter.forecast.alarm import Alarm, Verdict, state_of
from exporter.forecast.assessment import Assessment, ForecastOptions, PoolView
from exporter.forecast.blocks import BlockLine
from exporter.forecast.drivers import driver_of
from exporter.forecast.occupancy import Occupancy, Projection
from exporter.forecast.window import Window
from exporter.reading import EngineReading

REROLL_SECONDS = 2.0
"""A roll-out stands this long; the running set is followed at every reading."""
STALL_SECONDS = 120.0
PREEMPTING_SECONDS = 10.0


class EngineForecaster:
    """Stateful over one engine's readings; deterministic for the seed; time comes from the readings."""

    def __init__(self, options: ForecastOptions | None = None) -> None:
        """`options`: what the user knows beyond the page."""
        self.options = options or ForecastOptions()
        self._window = Window()
        self._occupancy = Occupancy(self.options)
        self._alarm = Alarm()
        self._projection: Projection | None = None
        self._rolled_at = float("-inf")
        self._progress_at: float | None = None

    def observe(self, reading: EngineReading, pool: PoolView | None) -> Assessment:
        """Take the next reading of the engine and assess it; without a pool the forecast abstains."""
        before = self._window.last
        arrival = self._window.add(reading)
        if arrival.reset or arrival.gap:
            self._occupancy.forget_running()
            self._projection, before = None, None
            self._rolled_at = float("-inf")
        blocked = self._blocked(before, reading)
        if blocked is not None or pool is None:
            self._alarm.observe(reading.time, None)
            verdict = blocked or Verdict("unknown", "the size of the KV pool is not known")
            return self._assessment(reading, verdict, None, predicted=False)
        line = self._occupancy.line(pool)
        self._occupancy.observe(before, reading, line)
        if reading.time - self._rolled_at >= REROLL_SECONDS - 0.5 and self._window.seconds > 5.0:
            self._projection = self._occupancy.project(reading, line)
            self._rolled_at = reading.time
        probability = None if self._projection is None else self._projection.probability[self.options.page_horizon]
        predicted = self._alarm.observe(reading.time, probability)
        preempted = self._window.rise("preemptions", PREEMPTING_SECONDS)
        verdict = state_of(probability, predicted, bool(preempted and preempted[0] > 0), self._alarm.rule.watch)
        return self._assessment(reading, verdict, self._projection, predicted, line)

    def _blocked(self, before: EngineReading | None, reading: EngineReading) -> Verdict | None:
        if reading.sleep_state not in (None, "awake"):
            return Verdict("asleep", f"the engine sleeps ({reading.sleep_state}); it holds no KV and is not at risk")
        if reading.kv_usage is None or reading.running is None:
            return Verdict("unknown", "the page shows no KV usage or no running requests yet")
        if self._window.sawtooth:
            return Verdict(
                "unknown", "counters jump between levels: several processes answer in turn, so no rate is true"
            )
        moved = before is None or before.generation_tokens != reading.generation_tokens or not reading.waiting
        if moved or reading.running > 0 or self._progress_at is None:
            self._progress_at = reading.time
        if reading.time - self._progress_at >= STALL_SECONDS:
            return Verdict("stalled", "requests wait while none runs and no token is generated")
        return None

    def _assessment(
        self,
        reading: EngineReading,
        verdict: Verdict,
        projection: Projection | None,
        predicted: bool,
        line: BlockLine | None = None,
    ) -> Assessment:
        window, occupancy = self._window, self._occupancy
        preempted, finished = window.rise("preemptions", 60.0), window.rise("finished", 60.0)
        length = occupancy.typical_prompt + occupancy.typical_output
        request = None if line is None or not occupancy.outputs.size else line.per_token * length + line.per_request
        return Assessment(
            time=reading.time,
            model_name=reading.model_name,
            engine=reading.engine,
            state=verdict.state,
            reason=verdict.reason,
            probability={} if projection is None else projection.probability,
            predicted=predicted,
            time_to_exhaustion_seconds=None if projection is None else projection.time_to_exhaustion,
            demand_ratio={} if projection is None else projection.demand,
            driver=None if line is None else driver_of(window, line.tokens),
            preemptions_per_second=window.rate("preemptions", 60.0),
            preemptions_per_finished_request=preempted[0] / finished[0]
            if preempted and finished and finished[0]
            else None,
            used_ratio_peak=window.peak_usage(60.0),
            blocks_per_request=request,
        )
