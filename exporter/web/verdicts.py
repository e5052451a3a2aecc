"""The answer to "is it all right?": one sentence for an engine, one for everything that is watched."""

from collections.abc import Sequence

from exporter.forecast.assessment import ForecastOptions
from exporter.snapshot import EngineStatus, SourceHealth
from exporter.web import words
from exporter.web.status import Device, Engine, Host, Verdict

PAGE_HORIZON = ForecastOptions().page_horizon
RECEDING = 0.3
"""Below this probability an alarm that is still on is on for what was, not for what comes."""


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
            chance = assessment.probability.get(PAGE_HORIZON)
            if until is None and chance is not None and chance < RECEDING:
                likely = f"the probability within {words.about(PAGE_HORIZON)} is down to {words.percent(chance)}"
                return f"KV cache was predicted to run out and the alarm is still on; {likely}."
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


def memory_sentence(what: str, memory: Device | Host) -> str:
    """What memory outside the pool is doing; `what` is the GPU's or the host's."""
    likely = "is predicted to run out" if memory.state == "predicted" else "is filling up and would run out"
    until = memory.time_to_exhaustion_seconds
    return f"{what} {likely}{f' in about {words.about(until)}' if until is not None else ''}."


def verdict_of(
    engines: Sequence[Engine], devices: Sequence[Device], host: Host | None, sources: Sequence[SourceHealth]
) -> Verdict:
    """The worst of everything, with how many others need attention too."""
    said = [*_of_engines(engines), *_of_servers(engines, sources), *_of_memory(devices, host)]
    if not said:
        return Verdict("unknown", "Not known: vLLM's page shows no engine yet.", "")
    worst = max(said, key=lambda verdict: words.SEVERITY.index(verdict.state))
    if len(said) > 1 and worst.state == "ok":
        all_of_them = f"All right: KV cache is not about to run out on any of {len(engines)} engines."
        return Verdict("ok", all_of_them, "")
    if len(said) > 1 and worst.state == "asleep":
        return Verdict("asleep", f"All {len(engines)} engines sleep: none holds KV cache or is at risk.", "")
    others = sum(verdict.state not in ("ok", "asleep") for verdict in said) - 1
    if others < 1:
        return worst
    more = f"{others} more {'needs' if others == 1 else 'need'} attention"
    return Verdict(worst.state, worst.sentence, f"{worst.detail}; {more}" if worst.detail else more)


def _of_engines(engines: Sequence[Engine]) -> list[Verdict]:
    if len(engines) == 1:
        return [Verdict(engines[0].state, engines[0].sentence, _rule(engines[0]))]
    return [Verdict(e.state, f"{engine_name(e, engines)}: {e.sentence}", _rule(e)) for e in engines]


def _of_servers(engines: Sequence[Engine], sources: Sequence[SourceHealth]) -> list[Verdict]:
    """Servers that cannot be read and have never shown an engine."""
    seen = {engine.server for engine in engines}
    down = [s for s in sources if s.source == "vllm" and not s.up and s.server not in seen]
    return [Verdict("unknown", f"Not known: {source.message.rstrip('.')}.", "") for source in down]


def _of_memory(devices: Sequence[Device], host: Host | None) -> list[Verdict]:
    """GPUs and the container, where they are not all right; their sight may fail without a word here."""
    memory: list[tuple[str, Device | Host]] = [(f"Memory of GPU {device.gpu}", device) for device in devices]
    if host is not None:
        memory.append(("Host memory", host))
    return [
        Verdict(part.state, memory_sentence(what, part), part.reason)
        for what, part in memory
        if part.state in ("watch", "predicted")
    ]


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
