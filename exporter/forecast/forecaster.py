"""Readings in, assessments out: one engine's forecast."""

from collections.abc import Mapping
from dataclasses import replace

from exporter.forecast.alarm import NEAR_SECONDS, Alarm, Verdict, state_of
from exporter.forecast.assessment import Assessment, Driver, ForecastOptions, PoolView
from exporter.forecast.blocks import BlockLine
from exporter.forecast.drivers import driver_of
from exporter.forecast.effort import REROLL_SECONDS, ROLLOUTS, Effort
from exporter.forecast.experience import Experience
from exporter.forecast.levers import levers
from exporter.forecast.occupancy import Occupancy
from exporter.forecast.projection import Projection
from exporter.forecast.recalibration import Evidence, log_odds, probability
from exporter.forecast.scorecard import Scorecard
from exporter.forecast.toll import Toll, toll_of
from exporter.forecast.vitals import Vitals
from exporter.forecast.window import Window
from exporter.reading import EngineReading

WARM_UP_SECONDS = 5.0
"""After a start, a restart or a gap nothing is forecast before rates have been seen this long."""
CALM_LOG_ODDS = -3.0
CALM_MOVE = 0.03
CALM_STRETCH = 2.0
"""A roll-out stands that many times as long while P < 0.05, nobody waits and usage has moved less than this since."""
RISKY_LOG_ODDS = -1.7
RISKY_SECONDS = 1.0
"""While P > 0.15, and where the process follows few engines, a roll-out of half the futures stands this long."""
IN_SIGHT = 0.1
"""Probability within a minute from which a time to exhaustion is told."""
LEVER_TURNS = 15.0
"""Of roll-outs, from one look at the levers to the next."""
PREEMPTING_SECONDS = 10.0
DRIVER_FROM = 0.1
"""Probability from which a driver is named; also when half of the pool is in use."""


class EngineForecaster:
    """Stateful over one engine's readings; deterministic for the seed; time comes from the readings."""

    def __init__(self, options: ForecastOptions | None = None, scored: Mapping[str, int] | None = None) -> None:
        """`options`: what the user knows beyond the page; the alarm's own horizons are always among those forecast.

        `scored`: outcomes of earlier forecasts of this engine, from which the score goes on.
        """
        asked = options or ForecastOptions()
        horizons = tuple(sorted({*asked.horizons, asked.page_horizon, NEAR_SECONDS}))
        self.options = replace(asked, horizons=horizons)
        self._window = Window()
        self._occupancy = Occupancy(self.options)
        self._vitals = Vitals()
        self._alarm = Alarm()
        self._experience = Experience(self.options.page_horizon)
        self._scorecard = Scorecard(self.options.page_horizon, scored)
        self._effort = Effort.among()
        self._projection: Projection | None = None
        self._rolled_at = self._levers_at = self._driven_at = self._preempted_at = float("-inf")
        self._last_driver: Driver = "none"
        self._rolled_usage, self._odds_seen = 0.0, 0.0
        self._levers: dict[str, float] = {}
        self.evidence: Evidence | None = None
        """What the last probability rests on; `None` when the forecast abstained."""

    def observe(self, reading: EngineReading, pool: PoolView | None, effort: Effort | None = None) -> Assessment:
        """Take the next reading of the engine and assess it; without a pool the forecast abstains.

        `effort` is this engine's share where one process follows many.
        """
        self._effort = effort or self._effort
        before = self._window.last
        step = self._window.add(reading)
        if step.reset or step.gap:
            self._break()
            before = None
        preempted = before is not None and _preemptions(reading) > _preemptions(before)
        if preempted:
            self._preempted_at = reading.time
        line = None if pool is None or pool.usable_blocks <= 0 else self._occupancy.line(pool)
        blocked = self._vitals.observe(reading, self._window.sawtooth)
        if blocked is None and line is None:
            blocked = Verdict("unknown", "the size of the KV pool is not known")
        odds: dict[float, float] = {}
        if line is not None and blocked is None:
            self._occupancy.observe(before, reading, line)
            odds = self._forecast(before.time if before is not None else None, reading, line)
        elif line is not None:
            self._abstain()
        page = odds.get(self.options.page_horizon)
        terms = () if page is None or self.evidence is None else self.evidence.features(self.options.page_horizon)
        self._experience.observe(reading.time, page, terms, preempted)
        return self._assess(reading, line, blocked, odds, preempted)

    def _break(self) -> None:
        """The engine restarted or was out of sight: what it learned stays, what was pending is void."""
        self._occupancy.forget_running()
        self._experience.forget_pending()
        self._scorecard.forget()
        self._alarm.observe(0.0, None)
        self._preempted_at = float("-inf")
        self._abstain()

    def _abstain(self) -> None:
        self._projection, self.evidence = None, None
        self._rolled_at = float("-inf")

    def _forecast(self, before: float | None, reading: EngineReading, line: BlockLine) -> dict[float, float]:
        """Log odds by horizon, before the engine's own experience; empty while warming up."""
        if self._window.seconds < WARM_UP_SECONDS:
            return {}
        due = reading.time - self._rolled_at >= self._reroll_after(reading) - 0.5
        if due and self._effort.turn(before, reading.time):
            self._roll(reading, line)
        if self._projection is None:
            return {}
        self.evidence = Evidence(
            shares=self._projection.shares,
            median_peak=self._projection.median_peak,
            usage=reading.kv_usage or 0.0,
            usage_5min=self._window.mean_usage,
            seconds_since_preemption=reading.time - self._preempted_at,
        )
        odds = log_odds(self.evidence, self.options.horizons)
        self._odds_seen = odds[self.options.page_horizon]
        return odds

    def _roll(self, reading: EngineReading, line: BlockLine) -> None:
        """Roll the load forward, and try the levers on what was rolled when it is time."""
        rollouts = self._effort.rollouts // (2 if self._risky else 1)
        projection = self._occupancy.project(reading, line, rollouts)
        before = self._projection if reading.time - self._rolled_at < REROLL_SECONDS else None
        self._rolled_at, self._rolled_usage = reading.time, reading.kv_usage or 0.0
        if projection is not None and projection.load is not None:
            if reading.time - self._levers_at >= LEVER_TURNS * self._effort.reroll_seconds:
                self._levers_at = reading.time
                grid, limit = self._occupancy.grid, self.options.max_model_len
                self._levers = dict(levers(projection.engine, projection.load, grid, reading.cache, limit))
            projection = replace(projection, load=None)
        self._projection = projection if projection is None or before is None else projection.after(before)

    @property
    def _risky(self) -> bool:
        return self._odds_seen > RISKY_LOG_ODDS and self._effort.rollouts == ROLLOUTS

    def _reroll_after(self, reading: EngineReading) -> float:
        """Seconds a roll-out stands: longer while nothing is in sight and the pool has not moved, shorter at risk."""
        if self._risky:
            return RISKY_SECONDS
        moved = abs((reading.kv_usage or 0.0) - self._rolled_usage) > CALM_MOVE
        calm = self._odds_seen < CALM_LOG_ODDS and not moved and not reading.waiting
        return self._effort.reroll_seconds * (CALM_STRETCH if calm else 1.0)

    def _assess(
        self,
        reading: EngineReading,
        line: BlockLine | None,
        blocked: Verdict | None,
        odds: dict[float, float],
        preempted: bool,
    ) -> Assessment:
        chances = {h: probability(logit + self._experience.shift) for h, logit in odds.items()}
        page = chances.get(self.options.page_horizon)
        since = reading.time - self._preempted_at
        predicted = self._alarm.observe(reading.time, page, chances.get(NEAR_SECONDS), since)
        self._scorecard.observe(reading.time, page, predicted, preempted)
        verdict = blocked or self._vitals.leaking(reading)
        if verdict is None and page is None and not reading.running and not reading.waiting:
            verdict = Verdict("ok", "the engine is idle: nothing runs and nothing waits")
        verdict = verdict or state_of(page, predicted, since <= PREEMPTING_SECONDS, self._alarm.rule.watch)
        projection = self._projection if page is not None else None
        toll = toll_of(self._window)
        return Assessment(
            time=reading.time,
            model_name=reading.model_name,
            engine=reading.engine,
            state=verdict.state,
            reason=verdict.reason + self._caveat(),
            probability=chances,
            predicted=predicted if page is not None else None,
            time_to_exhaustion_seconds=time_to_exhaustion(chances),
            demand_ratio={} if projection is None else projection.demand,
            offered_load_ratio=None if projection is None else projection.offered_load,
            driver=self._driver(reading, page, line),
            levers={} if projection is None else self._levers,
            used_ratio_peak=self._window.peak_usage(60.0),
            blocks_per_request=self._request(line),
            forecasts=dict(self._scorecard.counts),
            calibration_error=self._scorecard.calibration_error,
            **_fields(toll),
        )

    def _caveat(self) -> str:
        return "; its forecasts have been poor lately, trust it less" if self._scorecard.poor else ""

    def _request(self, line: BlockLine | None) -> float | None:
        if line is None or not self._occupancy.outputs.size:
            return None
        return line.per_token * (self._occupancy.typical_prompt + self._occupancy.typical_output) + line.per_request

    def _driver(self, reading: EngineReading, page: float | None, line: BlockLine | None) -> Driver | None:
        if page is None or line is None:
            return None
        limit = self._occupancy.seat_limit
        capped = bool(reading.waiting) and limit == reading.running
        at_risk = page >= DRIVER_FROM or (reading.kv_usage or 0.0) >= 0.5
        if not at_risk and not capped:
            return "none"
        if reading.time - self._driven_at >= self._effort.reroll_seconds - 0.5:
            self._driven_at = reading.time
            self._last_driver = driver_of(self._window.since(400.0), line.tokens, limit)
        return self._last_driver


def time_to_exhaustion(chances: dict[float, float], horizon: float = 60.0) -> float | None:
    """Median seconds to exhaustion, given that it comes within the horizon; `None` where none is in sight."""
    reach = sorted(h for h in chances if h <= horizon)
    if not reach or chances[reach[-1]] < IN_SIGHT:
        return None
    half, before, said = chances[reach[-1]] / 2, 0.0, 0.0
    for h in reach:
        if chances[h] >= half:
            return before + (h - before) * (half - said) / max(chances[h] - said, 1e-9)
        before, said = h, chances[h]
    return reach[-1]


def _preemptions(reading: EngineReading) -> float:
    known = reading.preemptions_kv_full if reading.preemptions_kv_full is not None else reading.preemptions
    return known or 0.0


def _fields(toll: Toll) -> dict[str, float | None]:
    return {
        "preemptions_per_second": toll.preemptions_per_second,
        "preemptions_per_finished_request": toll.preemptions_per_finished_request,
        "recomputed_tokens_per_second": toll.recomputed_tokens_per_second,
    }
