from collections.abc import Callable
from dataclasses import replace

import pytest

from exporter.forecast.assessment import Assessment
from exporter.web.status import Verdict
from exporter.web.telling import tell
from tests.web.scenes import MOODS, SCENES, Scene, device, engine, host, scene


def verdict(made: Scene) -> Verdict:
    return tell(made.snapshot, made.history, made.snapshot.time, 8.0).verdict


@pytest.mark.parametrize(
    ("name", "state", "sentence"),
    [
        ("ok", "ok", "All right: KV cache is not about to run out; 58 % of the cache is free."),
        ("watch", "watch", "KV cache may run out within 60 s (probability 41 %); driven by longer contexts."),
        ("predicted", "predicted", "KV cache is predicted to run out in about 40 s; driven by a burst of requests."),
        (
            "exhausted",
            "exhausted",
            "KV cache has run out: 1.4 preemptions per second; driven by a spike of prompt tokens.",
        ),
        ("stalled", "stalled", "The engine is stalled: 12 requests waiting and none runs."),
        ("asleep", "asleep", "The engine sleeps: it holds no KV cache and is not at risk."),
        ("unknown", "unknown", "Not known: not enough readings yet for a forecast."),
        ("vllm-down", "unknown", "Not known: cannot connect to http://127.0.0.1:8000/metrics: connection refused."),
        ("no-gpu", "ok", "All right: KV cache is not about to run out; 58 % of the cache is free."),
        ("gpu-leak", "predicted", "Memory of GPU 0 is predicted to run out in about 41 min."),
        (
            "two-engines",
            "predicted",
            "Engine 1: KV cache is predicted to run out in about 40 s; driven by a burst of requests.",
        ),
        (
            "eight-engines",
            "exhausted",
            "Engine 7: KV cache has run out: 1.4 preemptions per second; driven by a spike of prompt tokens.",
        ),
    ],
)
def test_every_scene_is_answered_in_one_sentence(name: str, state: str, sentence: str) -> None:
    """Is it all right? Each state of the world has its own sentence, and the worst one speaks."""
    told = verdict(SCENES[name]())
    assert (told.state, told.sentence) == (state, sentence)


def test_others_in_need_are_counted() -> None:
    """The worst engine speaks, and the detail says how many more need attention."""
    assert verdict(SCENES["eight-engines"]()).detail.endswith("; 2 more need attention")


def test_many_that_are_all_right_are_said_to_be() -> None:
    """Engines that are all right or asleep are answered together."""
    ok, asleep = MOODS["ok"], MOODS["asleep"]
    told = verdict(scene(engine(ok), engine(ok, "1"), engine(asleep, "2")))
    assert told.sentence == "All right: KV cache is not about to run out on any of 3 engines."
    told = verdict(scene(engine(asleep), engine(asleep, "1")))
    assert (told.state, told.sentence[:21]) == ("asleep", "All 2 engines sleep: ")


def test_no_engine_is_not_all_right() -> None:
    """A page without engines, or a server that was never reached, is unknown."""
    empty = scene()
    assert verdict(empty).sentence == "Not known: vLLM's page shows no engine yet."
    down = replace(empty.snapshot.sources[0], up=False, reason="refused", message="connection refused.")
    snapshot = replace(empty.snapshot, sources=(down,))
    assert verdict(Scene(snapshot, empty.history)).sentence == "Not known: connection refused."


def test_a_server_that_was_never_reached_outweighs_one_that_is_well() -> None:
    """Of two servers, the unreachable one makes the whole unknown, not the other one ok."""
    well = scene(engine(MOODS["ok"], server="a:8000"))
    sources = (
        replace(well.snapshot.sources[0], server="a:8000"),
        replace(well.snapshot.sources[0], server="b:8000", up=False, message="b:8000 does not answer"),
    )
    told = verdict(Scene(replace(well.snapshot, sources=sources), well.history))
    assert (told.state, told.sentence) == ("unknown", "Not known: b:8000 does not answer.")


def test_host_memory_speaks_up() -> None:
    """A container about to be killed outweighs engines that are well."""
    full = host()
    risk = replace(full.risk, state="predicted", reason="memory grows", time_to_exhaustion_seconds=300.0)
    told = verdict(scene(engine(MOODS["ok"]), host=replace(full, risk=risk)))
    assert (told.state, told.sentence) == ("predicted", "Host memory is predicted to run out in about 5 min.")
    risk = replace(risk, state="watch", time_to_exhaustion_seconds=None)
    told = verdict(scene(engine(MOODS["ok"]), host=replace(full, risk=risk)))
    assert (told.state, told.sentence) == ("watch", "Host memory is filling up and would run out.")


def test_a_gpu_that_cannot_be_seen_does_not_unsettle_the_answer() -> None:
    """An unknown GPU is told among the GPUs; the KV cache stays all right."""
    blind = device(state="unknown", reason="GPU 0 does not tell its memory (no permission)")
    assert verdict(scene(engine(MOODS["ok"]), devices=(blind,))).state == "ok"


def test_an_old_reading_is_not_an_answer() -> None:
    """When the last tick is older than allowed, whatever it said is not known any more."""
    made = SCENES["ok"]()
    told = tell(made.snapshot, made.history, made.snapshot.time + 40.0, 8.0)
    assert told.stale
    assert (told.verdict.state, told.verdict.sentence) == ("unknown", "Not known: the last reading is 40 s old.")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: replace(a, time_to_exhaustion_seconds=None), "KV cache is predicted to run out within 60 s"),
        (
            lambda a: replace(a, time_to_exhaustion_seconds=None, probability={60.0: 0.06}),
            "KV cache was predicted to run out and the alarm is still on; the probability within 60 s is down to 6 %.",
        ),
        (lambda a: replace(a, driver=None), "KV cache is predicted to run out in about 40 s."),
    ],
)
def test_what_is_not_known_is_left_out_of_the_sentence(change: Callable[[Assessment], Assessment], said: str) -> None:
    """Without a time or a driver the sentence says less, and nothing wrong."""
    status = engine(MOODS["predicted"])
    made = scene(replace(status, assessment=change(status.assessment)))
    assert verdict(made).sentence.startswith(said)
