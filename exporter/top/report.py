"""The lines that both the live view and the plain report are made of."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.forecast.assessment import State
from exporter.top.feeds import Seen
from exporter.web.bars import LABELS
from exporter.web.status import Device, Engine, Host, Status
from exporter.web.words import DRIVERS, WAITING, about, count, growth, percent, rate, size

PAGE_HORIZON = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """One engine among all servers that are watched."""

    server: str
    engine: Engine
    status: Status


def places(seen: Sequence[Seen]) -> list[Place]:
    """Every engine of every server, in the order of the servers given."""
    return [Place(one.server, engine, one.status) for one in seen if one.status for engine in one.status.engines]


def states(everyone: Sequence[Place]) -> list[State]:
    """The state of each."""
    return [place.engine.state for place in everyone]


def name(place: Place, others: Sequence[Place]) -> str:
    """The shortest name that tells the engine apart."""
    said = f"engine {place.engine.engine}"
    if len({other.engine.model_name for other in others}) > 1:
        said += f" {place.engine.model_name}"
    where = [w for w in (place.server if len({o.server for o in others}) > 1 else "", place.engine.server) if w]
    return f"{said} @ {' '.join(where)}" if where else said


def left(engine: Engine) -> str:
    """How much is left."""
    pool = engine.pool
    parts = [f"{count(pool.headroom_tokens)} tokens"] if pool.headroom_tokens is not None else []
    if pool.headroom_requests is not None:
        parts.append(f"{count(pool.headroom_requests)} requests")
    if pool.headroom_bytes is not None:
        parts.append(size(pool.headroom_bytes))
    return " · ".join(parts) if parts else "not known"


def soon(engine: Engine) -> str:
    """The probability within the alarm's horizon, and the time to exhaustion."""
    chance = next((c.probability for c in engine.forecast.chances if c.horizon_seconds == PAGE_HORIZON), None)
    until = engine.forecast.time_to_exhaustion_seconds
    said = f"{percent(chance)} in 60 s" if chance is not None else "no forecast"
    return f"{said}, out in {about(until)}" if until is not None else said


def facts(engine: Engine, *, brief: bool = False) -> list[tuple[str, str]]:
    """What there is to say of one engine beside its drawing, as names and texts; `brief` where room is short."""
    pool, load = engine.pool, engine.load
    capacity = f" of {count(pool.capacity_tokens)} tokens" if pool.capacity_tokens is not None else ""
    peak = f", at most {percent(pool.used_ratio_peak)} in 60 s" if pool.used_ratio_peak is not None else ""
    if brief:
        capacity = peak = ""
    used = f"; {percent(pool.used_ratio)}{capacity} in use{peak}" if pool.used_ratio is not None else ""
    rows = [("left", f"{left(engine)}{used}"), ("load", _load(engine))]
    lengths = [
        f"{what} {count(of.mean)} on average" + (f", 9 in 10 ≤ {count(of.p90_below)}" if of.p90_below else "")
        for what, of in (("prompts", load.prompt), ("outputs", load.output))
        if of.mean is not None
    ]
    if lengths and not brief:
        rows.append(("lengths", "; ".join(lengths)))
    chances = ", ".join(f"{percent(c.probability)} in {about(c.horizon_seconds)}" for c in engine.forecast.chances)
    rows.append(("runs out", chances or "no forecast at present"))
    if engine.forecast.driver not in (None, "none"):
        rows.append(("driven by", DRIVERS[engine.forecast.driver]))
    for place, lever in enumerate(engine.levers[: 1 if brief else 3]):
        cost = f" ({lever.cost})" if lever.cost and not brief else ""
        rows.append(("" if place else "helps", f"{lever.effect}: {lever.flag or lever.lever.replace('=', ': ')}{cost}"))
    if engine.score is not None and not brief:
        score = engine.score
        told = f"{score.hit} of {score.hit + score.false_alarm} alarms came true"
        if score.hit + score.false_alarm + score.miss:
            rows.append(("score", f"{told}, {score.hit} of {score.hit + score.miss} exhaustions foreseen"))
    return rows


def _load(engine: Engine) -> str:
    load = engine.load
    reasons = ", ".join(f"{count(n)} {WAITING.get(why, why)}" for why, n in sorted(load.waiting_by_reason.items()) if n)
    said = f"{count(load.running)} running, {count(load.waiting)} waiting{f' ({reasons})' if reasons else ''}"
    if load.preemptions_per_second:
        said += f"; {rate(load.preemptions_per_second)} preemptions a second"
    return said


def gpu(device: Device) -> str:
    """What a GPU is used for."""
    parts = ", ".join(f"{LABELS[part.kind]} {size(part.bytes)}" for part in device.segments)
    return f"{parts or device.reason}; growth outside the pool: {growth(device.growth_bytes_per_second)}"


def host(memory: Host) -> str:
    """The host's memory."""
    limit = f" of {size(memory.limit_bytes)}" if memory.limit_bytes is not None else ", no limit"
    return f"{memory.scope}: {size(memory.used_bytes)}{limit}; {memory.reason}"


def troubles(seen: Sequence[Seen]) -> list[str]:
    """Servers that do not answer and sources that are down."""
    said = [f"{one.server}: {one.fault}" for one in seen if one.status is None]
    for one in seen:
        if one.status is not None:
            down = [source for source in one.status.sources if not source.up]
            said += [f"{one.server} {source.source}: {source.message or source.reason}" for source in down]
    return said
