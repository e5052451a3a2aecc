"""What the page shows of engines: what is left, the load, the levers, the forecast and its score."""

from collections.abc import Sequence

from exporter.web.bars import meter
from exporter.web.chart import pool_chart
from exporter.web.markup import Child, Markup, join, tag
from exporter.web.status import Engine, Lengths, Load
from exporter.web.verdicts import engine_name
from exporter.web.words import DRIVERS, RULES, WAITING, about, ago, count, percent, rate, size

PAGE_HORIZON = 60.0


def anchor(number: int) -> str:
    """The id of the engine that stands at `number` on the page."""
    return f"engine-{number}"


def left_of_one(engine: Engine) -> Markup:
    """How much is left, in large figures; where nothing is known, what was known last."""
    pool = engine.pool
    if pool.used_ratio is None and pool.capacity_tokens is None:
        return tag("p", _last_known(engine), class_="quiet")
    rule = RULES.get(pool.capacity_tokens_rule or "", pool.capacity_tokens_rule)
    capacity = f"of {count(pool.capacity_tokens)}, {rule}" if pool.capacity_tokens is not None else "capacity not known"
    blocks = f"{count(pool.headroom_blocks)} of {count(pool.usable_blocks)} blocks"
    peak = f"{percent(pool.used_ratio_peak)} at most in 60 s" if pool.used_ratio_peak is not None else "of the pool"
    return tag(
        "ul",
        _figure(count(pool.headroom_tokens), "tokens left", capacity),
        _figure(count(pool.headroom_requests), "requests left", "typical of the present load"),
        _figure(size(pool.headroom_bytes), "left of the pool", blocks),
        _figure(percent(pool.used_ratio), "in use", peak),
        class_="figures",
    )


def _last_known(engine: Engine) -> str:
    past = engine.history
    for seconds, ratio in zip(reversed(past.seconds_ago), reversed(past.used_ratio), strict=True):
        if ratio is not None:
            return f"Not known at present; {ago(seconds)} {percent(ratio)} of the pool was in use."
    return "Not known at present."


def _figure(value: str, what: str, more: str) -> Markup:
    return tag("li", tag("b", value), tag("span", what), tag("small", more))


def left_of_many(engines: Sequence[Engine]) -> Markup:
    """How much is left, one line an engine, each a link to the engine's own part of the page."""
    rows = [_row(engine, number, engines) for number, engine in enumerate(engines)]
    return tag("ol", *rows, class_="rows")


def _row(engine: Engine, number: int, engines: Sequence[Engine]) -> Markup:
    pool = engine.pool
    left = [f"{count(pool.headroom_tokens)} tokens"] if pool.headroom_tokens is not None else []
    if pool.headroom_requests is not None:
        left.append(f"{count(pool.headroom_requests)} requests")
    if pool.headroom_bytes is not None:
        left.append(size(pool.headroom_bytes))
    chance = chance_of(engine)
    until = engine.forecast.time_to_exhaustion_seconds
    soon = f"{percent(chance)} in 60 s" if chance is not None else "no forecast"
    if until is not None and engine.state in ("watch", "predicted"):
        soon += f", about {about(until)}"
    name = engine_name(engine, engines)
    return tag(
        "li",
        tag("a", name, href=f"#{anchor(number)}", id=f"to-{anchor(number)}"),
        state_chip(engine.state),
        tag("span", meter(pool.used_ratio, f"{name}, KV in use", engine.state), percent(pool.used_ratio), class_="use"),
        tag("span", f"{' · '.join(left)} left" if left else "headroom not known", class_="left"),
        tag("span", soon, class_="soon"),
    )


def chance_of(engine: Engine) -> float | None:
    """The probability of exhaustion within the alarm's horizon."""
    return next((c.probability for c in engine.forecast.chances if c.horizon_seconds == PAGE_HORIZON), None)


def state_chip(state: str) -> Markup:
    """A state as a word on its colour."""
    return tag("strong", state, class_=f"chip {state}")


def engine_part(engine: Engine, number: int) -> Markup:
    """The pool over time, the load, the levers and the score of one engine."""
    return join(
        pool_chart(engine, f"pool-{number}"),
        tag("div", _load(engine.load), _levers(engine), _forecast(engine), class_="cards"),
    )


def card(title: str, *children: Child, class_: str = "card") -> Markup:
    """A titled box."""
    return tag("section", tag("h3", title), *children, class_=class_)


def terms(pairs: Sequence[tuple[str, Child]]) -> Markup:
    """Names and values in two columns."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))


def _load(load: Load) -> Markup:
    rows: list[tuple[str, Child]] = [("running", count(load.running)), ("waiting", count(load.waiting))]
    reasons = sorted((reason, n) for reason, n in load.waiting_by_reason.items() if n)
    rows += [(f"– {WAITING.get(reason, reason)}", count(n)) for reason, n in reasons]
    if load.held_tokens_per_request is not None:
        rows.append(("tokens held by a running request", f"≈\u00a0{count(load.held_tokens_per_request)}"))
    rows += [("prompt length", _lengths(load.prompt)), ("output length", _lengths(load.output))]
    if load.max_model_len is not None:
        rows.append(("longest context allowed", count(load.max_model_len)))
    if load.preemptions_per_second is not None:
        rows.append(("preemptions per second", rate(load.preemptions_per_second)))
    if load.preemptions_per_finished_request is not None:
        rows.append(("– per finished request", rate(load.preemptions_per_finished_request)))
    if load.recomputed_tokens_per_second:
        rows.append(("tokens computed again per second", f"≈\u00a0{rate(load.recomputed_tokens_per_second)}"))
    return card("Load", terms(rows))


def _lengths(lengths: Lengths) -> str:
    if lengths.mean is None:
        return "none finished yet"
    most = f", 9\u00a0in\u00a010\u00a0≤\u00a0{count(lengths.p90_below)}" if lengths.p90_below is not None else ""
    return f"mean\u00a0{count(lengths.mean)}{most}"


def _levers(engine: Engine) -> Markup:
    if not engine.levers:
        urgent = engine.state in ("watch", "predicted", "exhausted")
        text = "What a lever would gain is not known." if urgent else "Nothing needs to be done at present."
        return card("What would help", tag("p", text, class_="quiet"))
    items = [
        tag(
            "li",
            tag("b", lever.effect),
            tag("code", lever.flag) if lever.flag else tag("span", lever.lever.replace("_", " ").replace("=", ": ")),
            tag("small", lever.cost) if lever.cost else None,
        )
        for lever in engine.levers
    ]
    return card("What would help", tag("ul", *items, class_="levers"), tag("p", "Gains are estimated.", class_="quiet"))


def _forecast(engine: Engine) -> Markup:
    forecast, score = engine.forecast, engine.score
    chances = [
        tag(
            "li",
            tag("span", f"within {about(c.horizon_seconds)}"),
            meter(c.probability, f"within {about(c.horizon_seconds)}", engine.state),
            tag("b", percent(c.probability)),
        )
        for c in forecast.chances
    ]
    shown = tag("ul", *chances, class_="chances") if chances else tag("p", "No forecast at present.", class_="quiet")
    rows: list[tuple[str, Child]] = []
    if forecast.driver is not None and forecast.driver != "none":
        rows.append(("driven by", DRIVERS[forecast.driver]))
    if engine.pool.offered_load_ratio is not None:
        rows.append(("long-run demand", percent(engine.pool.offered_load_ratio)))
    if score is not None:
        alarms, onsets = score.hit + score.false_alarm, score.hit + score.miss
        rows.append(("alarms that came true", f"{score.hit} of {alarms}" if alarms else "none yet"))
        rows.append(("exhaustions foreseen", f"{score.hit} of {onsets}" if onsets else "none yet"))
        if score.calibration_error is not None:
            rows.append(("calibration error", percent(score.calibration_error)))
    else:
        rows.append(("own score", "nothing to score yet"))
    return card("Will it run out?", shown, terms(rows))
