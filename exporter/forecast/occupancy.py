"""The KV projection of one engine: what the present load will hold, and P(exhaustion)."""

from dataclasses import dataclass, replace

import numpy as np

from exporter.forecast.arrivals import Arrivals, arrived_in_total
from exporter.forecast.assessment import ForecastOptions, PoolView
from exporter.forecast.blocks import BlockLine, block_line
from exporter.forecast.bounds import present
from exporter.forecast.effort import FEWEST_ROLLOUTS, ROLLOUTS
from exporter.forecast.endings import Endings
from exporter.forecast.lengths import FEW_SURVIVORS, Allowed, Floats, LengthSample, allowed, evenly, newly_finished
from exporter.forecast.recalibration import moments
from exporter.forecast.rollout import PREFILL_SHARE_LIMIT, SCHEDULE_STRIDE, Grid, Load, roll
from exporter.forecast.running import CACHED_MEMORY, RunningTracker
from exporter.forecast.schedule import Engine
from exporter.forecast.seats import SeatLimit
from exporter.forecast.steps import StepTimes
from exporter.forecast.window import rise
from exporter.reading import EngineReading

REQUESTS_ROLLED = 32_000
"""Requests in all roll-outs together, a bound on time and memory: from four a second on there are fewer roll-outs,
and the pooled figures of the recordings are no worse for it."""
UNKNOWN_LIMIT = 1e9
PRIOR_PROMPT = 512.0
PRIOR_OUTPUT = 256.0
"""Lengths assumed before anything has finished and nothing on the page tells better."""

SHORTEST_MEMORY, LONGEST_MEMORY = 16, 1500
"""Prompts of coming requests are drawn from that many of the newest ones: each future believes in another memory."""


@dataclass(frozen=True, slots=True)
class Projection:
    """One roll-out's summary.

    `shares`: seconds → share of roll-outs exhausted by then. `median_peak`: of the highest demand over capacity
    within a minute. `demand`: (horizon, quantile) → demand over capacity. `offered_load`: in the long run. `load` is
    what was rolled; it is most of what an engine takes, so it is let go of once the levers are tried on it.
    """

    shares: dict[float, float]
    median_peak: float
    demand: dict[tuple[float, float], float]
    offered_load: float | None
    engine: Engine
    load: Load | None

    def after(self, before: "Projection") -> "Projection":
        """The mean of it and of the seconds before, each half as heavy as the next: what differs is mostly chance."""
        shares = {seconds: (share + before.shares[seconds]) / 2 for seconds, share in self.shares.items()}
        return replace(self, shares=shares, median_peak=(self.median_peak + before.median_peak) / 2)


class Occupancy:
    """Everything learned of one engine's load, and its projection."""

    def __init__(self, options: ForecastOptions) -> None:
        self._options = options
        self.grid = Grid(end=max(120.0, *options.horizons))
        self.random = np.random.default_rng(options.seed)
        self._prior_random = np.random.default_rng((options.seed, 1))
        self.prompts = LengthSample()
        self.outputs = LengthSample()
        self.births = LengthSample()
        self.steps = StepTimes()
        self.arrivals = Arrivals()
        self.tracker = RunningTracker()
        self.seats = SeatLimit()
        self.endings = Endings()
        self._allowed = Allowed()
        self._cached, self._born = 0.0, 0.0

    def forget_running(self) -> None:
        """The engine restarted or was out of sight: lengths and speeds stay, the running set does not."""
        self.tracker = RunningTracker()
        self.arrivals = Arrivals()

    def line(self, pool: PoolView) -> BlockLine:
        """What a request of the present load holds of the pool."""
        return block_line(pool, self.typical_prompt + self.typical_output)

    def observe(self, before: EngineReading | None, now: EngineReading, pool: BlockLine) -> None:
        """Learn from one reading; `before` is the one it continues, `None` after a break."""
        if before is not None:
            self._learn(before, now, pool)
        elif now.generation_lengths is not None and not self.outputs.total:
            self.outputs.add(evenly(newly_finished(None, now.generation_lengths)))
            if now.prompt_lengths is not None:
                self.prompts.add(evenly(newly_finished(None, now.prompt_lengths)))
        self.seats.observe(now)
        self._allowed = allowed(now.max_tokens_params)
        self.tracker.observe(before, now, pool, self.typical_prompt)

    def _learn(self, before: EngineReading, now: EngineReading, pool: BlockLine) -> None:
        seconds = now.time - before.time
        if now.generation_lengths is not None:
            ended = newly_finished(before.generation_lengths, now.generation_lengths)
            if before.iteration_tokens is not None and now.iteration_tokens is not None:
                steps = max(0.0, now.iteration_tokens.count - before.iteration_tokens.count)
                self.endings.observe(seconds, len(ended), self.tracker.state.age, steps, self.outputs)
            self.outputs.add(ended)
        if now.prompt_lengths is not None:
            self.prompts.add(newly_finished(before.prompt_lengths, now.prompt_lengths))
        if before.first_tokens is not None and now.first_tokens is not None:
            born, prompts = (
                now.first_tokens.count - before.first_tokens.count,
                rise(now.prompt_tokens, before.prompt_tokens),
            )
            if born > 0 and prompts:
                self.births.add(np.full(present(born), prompts / born))
                cached = rise(now.prompt_tokens_cached, before.prompt_tokens_cached) or 0.0
                self._born = min(CACHED_MEMORY, self._born) + born
                self._cached += (min(1.0, cached / prompts) - self._cached) * born / self._born
        a, b = arrived_in_total(before), arrived_in_total(now)
        if a is not None and b is not None and seconds > 0:
            self.arrivals.observe(seconds, b - a)
        if before.iteration_tokens is not None and now.iteration_tokens is not None:
            usage = ((before.kv_usage or 0.0) + (now.kv_usage or 0.0)) / 2
            self.steps.observe(
                seconds,
                now.iteration_tokens.count - before.iteration_tokens.count,
                now.iteration_tokens.sum - before.iteration_tokens.sum,
                usage * pool.tokens,
                busy=bool(before.running and now.running),
            )

    @property
    def seat_limit(self) -> float | None:
        """`max_num_seqs`, as told or as inferred."""
        return self._options.max_num_seqs or self.seats.limit

    @property
    def typical_prompt(self) -> float:
        """Mean prompt in tokens of the present load."""
        return self.prompts.mean() or PRIOR_PROMPT

    @property
    def typical_output(self) -> float:
        """Mean output in tokens of the present load."""
        return self.outputs.mean() or PRIOR_OUTPUT

    @property
    def kept(self) -> float:
        """Share of a coming prompt that takes blocks nobody holds yet: what is cached and held by others takes none.

        The page tells how much of the prompts was cached, and the live requests how much of theirs they share.
        """
        return max(1.0 - self._cached, self.tracker.kept)

    def project(self, now: EngineReading, pool: BlockLine, rollouts: int) -> Projection | None:
        """Roll the present load forward; `None` when the page does not tell enough. `rollouts` trade noise for time."""
        if now.kv_usage is None or now.running is None or not self.steps.known:
            return None
        options, horizon = self._options, self.grid.times[-1]
        t0, t1, t2 = self.steps.coefficients()
        seats, budget = self.seat_limit or UNKNOWN_LIMIT, options.max_num_batched_tokens or UNKNOWN_LIMIT
        engine = Engine(pool, seats, budget, options.watermark * pool.usable, t0, t1, t2)
        load = self._load(now, pool, horizon, rollouts)
        futures = roll(engine, load, self.grid)
        cells = [min(int(np.searchsorted(futures.times, h)), len(futures.times) - 1) for h in options.horizons]
        # Requests that end within a cell fall before they have risen: the last trace of them can lie below nothing.
        levels = np.maximum(np.quantile(futures.demand[:, cells], options.quantiles, axis=0), 0.0).tolist()
        demand = {
            (h, q): level
            for q, row in zip(options.quantiles, levels, strict=True)
            for h, level in zip(options.horizons, row, strict=True)
        }
        shares = {s: float((futures.exhausted_at <= s).mean()) for s in moments(options.horizons)}
        peak = float(np.median(futures.peak(60.0)))
        return Projection(shares, peak, demand, self._offered_load(pool), engine, load)

    def _offered_load(self, pool: BlockLine) -> float | None:
        """Long-run demand of the last minute's arrivals over capacity: rate × block-seconds of a request.

        Steps are as long as they are when the pool is full, prefills included: the question is whether a full pool
        would keep up, so that 1 is where it just does.
        """
        if not self.outputs.size or not self.steps.known or pool.usable <= 0:
            return None
        outputs = self.outputs.newest
        t0, t1, t2 = self.steps.coefficients()
        rate, mean = self.arrivals.rate_of_a_minute, float(outputs.mean())
        prompt = self.typical_prompt * self.kept
        running = pool.usable / max(1.0, pool.per_token * (prompt + mean / 2) + pool.per_request)
        step = t0 + t1 * running + t2 * pool.tokens
        pace = step / (1.0 - min(t1 * rate * prompt, PREFILL_SHARE_LIMIT))
        tokens = prompt * mean + float((outputs**2).mean()) / 2
        held = pool.per_token * tokens + pool.per_request * mean
        return rate * (pace * held + t1 * prompt * (prompt * pool.per_token + pool.per_request)) / pool.usable

    def _load(self, now: EngineReading, pool: BlockLine, horizon: float, rollouts: int) -> Load:
        live, draw = self.tracker.state, self.random
        limit = min(float(self._options.max_model_len or UNKNOWN_LIMIT), self._allowed.most)
        r = self._affordable(rollouts, len(live.age) + len(live.prefilling) + (now.waiting or 0.0), horizon)
        contexts = np.concatenate((live.prompt + live.age, live.prefilling))
        ages = np.concatenate((live.age, np.zeros(len(live.prefilling))))
        left = self._outputs_beyond(ages, (r, len(ages)), limit) - ages
        arrival = self.arrivals.continuations(draw, r, horizon)
        waiting = present(now.waiting)
        fresh = max(0, waiting - len(live.preempted_prompt))
        prompt = self._prompts((r, fresh + arrival.shape[1])) * self.kept
        output = self._outputs_beyond(np.zeros(prompt.shape[1]), prompt.shape, limit)
        back = live.preempted_prompt[:waiting], live.preempted_age[:waiting]
        again = np.broadcast_to(back[0] + back[1], (r, len(back[0])))
        again_left = self._outputs_beyond(back[1], again.shape, limit) - back[1]
        queue = np.zeros((r, len(back[0]) + fresh))
        return Load(
            used_blocks=now.kv_usage * pool.usable if now.kv_usage else 0.0,
            context=contexts,
            left=left,
            arrival=np.concatenate((queue, arrival), axis=1),
            prompt=np.concatenate((again, prompt), axis=1),
            output=np.concatenate((again_left, output), axis=1),
            backlog=float(live.prefilling.sum()) / 2,
            chance=draw.random((r, self.grid.fine_cells // SCHEDULE_STRIDE)),
        )

    def _affordable(self, rollouts: int, there: float, horizon: float) -> int:
        """Roll-outs that fit the budget; the more requests there are, the less one roll-out differs from another."""
        requests = there + float(self.arrivals.rates()[-1]) * horizon
        affordable = REQUESTS_ROLLED * rollouts / ROLLOUTS // max(1.0, requests)
        return int(np.clip(affordable, FEWEST_ROLLOUTS, rollouts))

    def _prompts(self, shape: tuple[int, int]) -> Floats:
        known = self.births if self.births.size else self.prompts
        if not known.size:
            return np.full(shape, PRIOR_PROMPT)
        memory = np.exp(self.random.uniform(np.log(SHORTEST_MEMORY), np.log(LONGEST_MEMORY), (shape[0], 1)))
        return known.draw(self.random.random(shape), memory)

    def _outputs_beyond(self, ages: Floats, shape: tuple[int, int], limit: float) -> Floats:
        finished = self.outputs.size
        if not finished:
            return self._prior_beyond(self.random, ages, shape, limit)
        drawn = self.outputs.draw_beyond(ages, self.random.random(shape) ** (1.0 / self.endings.ratio), limit)
        if finished >= FEW_SURVIVORS:
            return drawn
        believed = self._prior_random.random(shape) < finished / (finished + FEW_SURVIVORS / 2)
        return np.where(believed, drawn, self._prior_beyond(self._prior_random, ages, shape, limit))

    def _prior_beyond(self, random: np.random.Generator, ages: Floats, shape: tuple[int, int], limit: float) -> Floats:
        """Lengths before the load has shown its own: exponential, and half of what clients allow if that is less."""
        drawn = random.exponential(min(PRIOR_OUTPUT, self._allowed.mean / 2), shape) + ages
        return np.minimum(np.maximum(ages + 1.0, drawn), np.maximum(limit, ages + 1.0))
