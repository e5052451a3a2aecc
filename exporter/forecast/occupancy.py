"""The KV projection of one engine: what the present load will hold, and P(exhaustion)."""

import numpy as np

from exporter.forecast.arrivals import Arrivals, arrived_in_total
from exporter.forecast.assessment import ForecastOptions, PoolView
from exporter.forecast.blocks import BlockLine, block_line
from exporter.forecast.bounds import present
from exporter.forecast.coming import Coming, Counts
from exporter.forecast.effort import FEWEST_ROLLOUTS, ROLLOUTS
from exporter.forecast.endings import Endings
from exporter.forecast.grid import Grid
from exporter.forecast.lengths import FEW_SURVIVORS, Allowed, Ended, Floats, LengthSample, allowed, evenly
from exporter.forecast.projection import Projection
from exporter.forecast.recalibration import moments
from exporter.forecast.rollout import PREFILL_SHARE_LIMIT, SCHEDULE_STRIDE, Load, roll
from exporter.forecast.running import CACHED_MEMORY, RunningSet, RunningTracker
from exporter.forecast.schedule import Engine
from exporter.forecast.seats import SeatLimit
from exporter.forecast.steps import StepTimes
from exporter.forecast.window import rise
from exporter.reading import EngineReading

REQUESTS_ROLLED = 16_000
"""Requests in all roll-outs together, a bound on time and memory: from two a second on there are fewer roll-outs, and
the pooled figures of the recordings differ by no more than chance moves them."""
UNKNOWN_LIMIT = 1e9
PRIOR_PROMPT = 512.0
PRIOR_OUTPUT = 256.0
"""Lengths assumed before anything has finished and nothing on the page tells better."""

SHORTEST_MEMORY, LONGEST_MEMORY = 16, 1500
"""Prompts of coming requests are drawn from that many of the newest ones: each future believes in another memory."""


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
        ended = Ended.between(before, now)
        if before is not None:
            self._learn(before, now, ended, pool)
        elif not self.outputs.total and len(ended.outputs):
            self.outputs.add(evenly(ended.outputs))
            self.prompts.add(evenly(ended.prompts))
        self.seats.observe(now)
        self._allowed = allowed(now.max_tokens_params)
        self.tracker.observe(before, now, ended, pool, self.typical_prompt)

    def _learn(self, before: EngineReading, now: EngineReading, ended: Ended, pool: BlockLine) -> None:
        seconds = now.time - before.time
        if now.generation_lengths is not None and before.iteration_tokens and now.iteration_tokens:
            steps = max(0.0, now.iteration_tokens.count - before.iteration_tokens.count)
            self.endings.observe(seconds, len(ended.outputs), self.tracker.state.age, steps, self.outputs)
        self.outputs.add(ended.outputs)
        self.prompts.add(ended.prompts)
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
        options, farthest = self._options, self.grid.times[-1]
        t0, t1, t2 = self.steps.coefficients()
        seats, budget = self.seat_limit or UNKNOWN_LIMIT, options.max_num_batched_tokens or UNKNOWN_LIMIT
        engine = Engine(pool, seats, budget, options.watermark * pool.usable, t0, t1, t2)
        load = self._load(now, pool, farthest, rollouts)
        futures = roll(engine, load, self.grid)
        levels = futures.demand_at(options.horizons, options.quantiles)
        demand = {
            (horizon, quantile): level
            for quantile, row in zip(options.quantiles, levels, strict=True)
            for horizon, level in zip(options.horizons, row, strict=True)
        }
        shares = {seconds: futures.exhausted_by(seconds) for seconds in moments(options.horizons)}
        return Projection(shares, futures.median_peak(60.0), demand, self._offered_load(pool), engine, load)

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
        live, random = self.tracker.state, self.random
        limit = min(float(self._options.max_model_len or UNKNOWN_LIMIT), self._allowed.most)
        r = self._affordable(rollouts, len(live.age) + len(live.prefilling) + (now.waiting or 0.0), horizon)
        ages = np.concatenate((live.age, np.zeros(len(live.prefilling))))
        left = self._outputs_beyond(ages, (r, len(ages)), limit) - ages
        return Load(
            used_blocks=now.kv_usage * pool.usable if now.kv_usage else 0.0,
            context=np.concatenate((live.prompt + live.age, live.prefilling)),
            left=left,
            coming=self._coming(live, present(now.waiting), r, horizon, limit),
            backlog=float(live.prefilling.sum()) / 2,
            chance=random.random((r, self.grid.fine_cells // SCHEDULE_STRIDE)),
        )

    def _coming(self, live: RunningSet, waiting: int, rollouts: int, horizon: float, limit: float) -> Coming:
        """Those that wait, the preempted first, and those that will arrive."""
        times, arriving = self.arrivals.continuations(self.random, rollouts, horizon)
        again = live.preempted_prompt[:waiting], live.preempted_age[:waiting]
        preempted = len(again[0])
        count = arriving + waiting
        arrival = np.zeros(int(count.sum()))
        arrival[np.arange(len(times)) + np.repeat(np.arange(1, rollouts + 1) * waiting, arriving)] = times
        prompt = self._prompts(count, limit) * self.kept
        output = self._outputs(len(arrival), limit)
        coming = Coming(count, arrival, prompt, output)
        if preempted:
            first = coming.begin[:, None] + np.arange(preempted)
            prompt[first] = again[0] + again[1]
            output[first] = self._outputs_beyond(again[1], (rollouts, preempted), limit) - again[1]
        return coming

    def _affordable(self, rollouts: int, there: float, horizon: float) -> int:
        """Roll-outs that fit the budget; the more requests there are, the less one roll-out differs from another."""
        requests = there + float(self.arrivals.rates()[-1]) * horizon
        affordable = REQUESTS_ROLLED * rollouts / ROLLOUTS // max(1.0, requests)
        return int(np.clip(affordable, FEWEST_ROLLOUTS, rollouts))

    def _prompts(self, count: Counts, limit: float) -> Floats:
        requests = int(count.sum())
        known = self.births if self.births.size else self.prompts
        if not known.size:
            return np.full(requests, PRIOR_PROMPT)
        memory = np.exp(self.random.uniform(np.log(SHORTEST_MEMORY), np.log(LONGEST_MEMORY), len(count)))
        return np.minimum(known.draw(self.random.random(requests), memory, count), limit)

    def _outputs(self, requests: int, limit: float) -> Floats:
        """Lengths of requests that have yet to begin."""
        if self.outputs.size < FEW_SURVIVORS:
            return self._outputs_beyond(np.zeros(requests), (requests,), limit)
        return self.outputs.draw_whole(self.random.random(requests), 1.0 / self.endings.ratio, limit)

    def _outputs_beyond(self, ages: Floats, shape: tuple[int, ...], limit: float) -> Floats:
        finished = self.outputs.size
        if not finished:
            return self._prior_beyond(self.random, ages, shape, limit)
        drawn = self.outputs.draw_beyond(ages, self.random.random(shape) ** (1.0 / self.endings.ratio), limit)
        if finished >= FEW_SURVIVORS:
            return drawn
        believed = self._prior_random.random(shape) < finished / (finished + FEW_SURVIVORS / 2)
        return np.where(believed, drawn, self._prior_beyond(self._prior_random, ages, shape, limit))

    def _prior_beyond(self, random: np.random.Generator, ages: Floats, shape: tuple[int, ...], limit: float) -> Floats:
        """Lengths before the load has shown its own: exponential, and half of what clients allow if that is less."""
        drawn = random.exponential(min(PRIOR_OUTPUT, self._allowed.mean / 2), shape) + ages
        return np.minimum(np.maximum(ages + 1.0, drawn), np.maximum(limit, ages + 1.0))
