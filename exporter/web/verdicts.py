"""The answer to "is it all right?": one sentence for an engine, one for everything that is watched."""

from collections.abc import Sequence

from exporter.forecast.assessment import ForecastOptions, State
from exporter.snapshot import EngineStatus, SourceHealth
from exporter.web import words
from exporter.web.status import Device, Engine, Host, Verdict

PAGE_HORIZON = ForecastOptions().page_horizon


def engine_sentence(status: EngineStatus) -> str:
    """What the KV pool of one engine is doing."""
    assessment, reading = status.assessment, status.reading
    driver = assessment.driver
    because = f"; driven by {words.DRIVERS[driver]}" if driver is not None and driver != "none" else ""
    match assessment.state:
        case "exhausted":
            per_second = assessment.preemptions_per_second
            pace = f"{words.rate(per_second)} preemptions per second" if per_second else "requests are preempted"
            return f"KV cache has run out: {pace}{because}."
        case "predicted":
            until = assessment.time_to_exhaustion_seconds
            when = f"in about {words.about(until)}" if until is not None else f"within {words.about(PAGE_HORIZON)}"
            return f"KV cache is predicted to run out {when}{because}."
        case "watch":
            chance = assessment.probability.get(PAGE_HORIZON)
            likely = f" within {words.about(PAGE_HORIZON)}"
            likely += f" (probability {words.percent(chance)})" if chance is not None else ""
            return f"KV cache may run out{likely}{because}."
        case "stalled":
            waiting = f"{words.plural(reading.waiting, 'request')} waiting" if reading.waiting else "requests waiting"
            return f"The engine is stalled: {waiting} and none runs."
        case "asleep":
            return "The engine sleeps: it holds no KV cache and is not at risk."
        case "unknown":
            return f"Not known: {assessment.reason.rstrip('.')}."
        case "ok":
            free = (
                f"; {words.percent(1 - reading.kv_usage)} of the cache is free" if reading.kv_usage is not None else ""
            )
            return f"All right: KV cache is not about to run out{free}."


def memory_sentence(what: str, state: State, until: float | None) -> str:
    """What memory outside the pool is doing; `what` is the GPU or the host."""
    likely = "is predicted to run out" if state == "predicted" else "is filling up and would run out"
    return f"{what} {likely}{f' in about {words.about(until)}' if until is not None else ''}."


def verdict_of(
    engines: Sequence[Engine], devices: Sequence[Device], host: Host | None, sources: Sequence[SourceHealth]
) -> Verdict:
    """The worst of everything, with how many others need attention too."""
    several = len(engines) > 1
    said: list[tuple[State, str, str]] = [
        (e.state, f"{engine_name(e, engines)}: {e.sentence}" if several else e.sentence, _rule(e)) for e in engines
    ]
    for device in devices:
        if device.state in ("watch", "predicted"):
            until = device.time_to_exhaustion_seconds
            said.append(
                (device.state, memory_sentence(f"Memory of GPU {device.gpu}", device.state, until), device.reason)
            )
    if host is not None and host.state in ("watch", "predicted"):
        said.append(
            (host.state, memory_sentence("Host memory", host.state, host.time_to_exhaustion_seconds), host.reason)
        )
    down = [source for source in sources if source.source == "vllm" and not source.up]
    if not said:
        message = down[0].message if down else "vLLM's page shows no engine yet"
        return Verdict("unknown", f"Not known: {message.rstrip('.')}.", "")
    state, sentence, detail = max(said, key=lambda each: words.SEVERITY.index(each[0]))
    alike = sum(each[0] == state for each in said)
    if state == "ok" and several:
        return Verdict(state, f"All right: KV cache is not about to run out on any of {len(engines)} engines.", "")
    if state == "asleep" and several:
        return Verdict(state, f"All {len(engines)} engines sleep: none holds KV cache or is at risk.", "")
    others = sum(words.SEVERITY.index(each[0]) >= words.SEVERITY.index("unknown") for each in said) - 1
    if others > 0:
        detail = f"{others} more {'needs' if others == 1 else 'need'} attention" + (
            f", {alike - 1} of them {state}" if 1 < alike <= others else ""
        )
    return Verdict(state, sentence, detail)


def engine_name(engine: Engine, engines: Sequence[Engine]) -> str:
    """The shortest name that tells `engine` apart from the others."""
    name = f"engine {engine.engine}"
    if len({other.model_name for other in engines}) > 1:
        name += f" of {engine.model_name}"
    if len({other.server for other in engines}) > 1:
        name += f" at {engine.server}"
    return name[0].upper() + name[1:]


def _rule(engine: Engine) -> str:
    """The rule behind the state, where the sentence does not say it already."""
    return engine.reason if engine.state in ("watch", "predicted", "exhausted", "stalled") else ""
