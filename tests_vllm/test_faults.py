"""Servers that are restarted, put to sleep, suspended and killed while they work."""

import time

from tests_vllm.conftest import Watching
from tests_vllm.exporter import Exporter, Reading
from tests_vllm.findings import Findings
from tests_vllm.load import Load
from tests_vllm.paced import PacedServer

RATES = ("preemptions_per_second", "preemptions_per_finished_request", "recomputed_tokens_per_second")


def overload(load: Load, count: int = 24) -> None:
    """Enough to preempt within seconds."""
    for _ in range(count):
        load.send(load.random.randint(50, 400), load.random.randint(400, 900), stream=False)


def rates(readings: list[Reading]) -> list[float]:
    """Every rate that was shown."""
    found = (reading.value(name) for reading in readings for name in RATES)
    return [value for value in found if value is not None]


def gone(exporter: Exporter, reason: str, seconds: float = 30) -> Reading:
    """The first reading that says the page cannot be had, and why."""
    return exporter.wait(
        lambda now: now.value("source_down_reason", source="vllm", reason=reason) == 1, seconds, f"reason {reason}"
    )


def test_a_sleeping_engine_is_not_at_risk(server: PacedServer, watching: Watching, findings: Findings) -> None:
    """Put to sleep it is `asleep`, without an alarm; woken it is assessed again."""
    exporter = watching(server)
    with server.client() as client, Load(server, seed=8) as load:
        load.send(100, 100)
        load.wait(30)
        client.post("/sleep", params={"level": 1}).raise_for_status()
        asleep = exporter.wait(lambda now: now.page.state() == "asleep", 15, "the state asleep")
        assert not asleep.predicted
        findings.keep("vllm-0.32-one-engine-asleep", server)
        client.post("/wake_up").raise_for_status()
        exporter.wait(lambda now: now.page.state() == "ok", 15, "the state ok")
        load.send(100, 50)
        load.wait(30)
    assert [request.fault for request in load.sent] == [None, None]
    findings.note("sleep and wake", states=["asleep", "ok"])


def test_a_suspended_server_is_not_ok(server: PacedServer, watching: Watching, findings: Findings) -> None:
    """All of it suspended, its page times out: unknown. Its engine alone suspended, its page stands still: stalled."""
    exporter = watching(server)
    with Load(server, seed=9) as load:
        for _ in range(6):
            load.send(100, 1100, stream=False)
        exporter.wait(lambda now: now.value("requests", state="running") == 6, 30, "six running requests")
        stopped = time.time()
        server.suspend()
        silent = gone(exporter, "timeout")
        assert silent.page.state() == "unknown"
        assert silent.used is None
        server.resume()
        exporter.wait(lambda now: now.page.state() in ("ok", "watch", "predicted"), 30, "an assessment")
        server.suspend(engines_only=True)
        frozen = time.time()
        stalled = exporter.wait(lambda now: now.page.state() == "stalled", 150, "the state stalled")
        findings.note(
            "suspended",
            server_seconds_until_unknown=round(silent.ended - stopped, 1),
            engine_seconds_until_stalled=round(stalled.ended - frozen, 1),
        )
        server.resume()
        exporter.wait(lambda now: now.page.state() != "stalled", 30, "another state than stalled")
        load.abort()


def test_a_restart_in_mid_load_gives_no_false_rate(server: PacedServer, watching: Watching, findings: Findings) -> None:
    """While it is down nothing is known; afterwards counters begin anew, and no rate is negative or absurd."""
    exporter = watching(server)
    begun = time.time()
    with Load(server, seed=7) as load:
        overload(load)
        exporter.wait(lambda now: bool(now.value("preemptions_per_second")), 60, "a preemption")
        server.stop()
        down = gone(exporter, "refused")
        assert down.page.state() == "unknown"
        assert down.used is None
        assert down.value("preemptions_per_second") is None
        server.start()
        back = exporter.wait(lambda now: now.used is not None, 30, "the page again")
        assert not back.value("preemptions_per_second")
        load.wait(30)
        again = time.time()
        overload(load)
        exporter.wait(lambda now: bool(now.value("preemptions_per_second")), 90, "a preemption after the restart")
        load.abort()
    shown = rates(exporter.since(begun))
    elapsed = max(1.0, exporter.last.ended - again)
    most = len(server.events(again)) / elapsed
    findings.note("restart in mid-load", rates_shown=len(shown), least=min(shown), highest=round(max(shown), 2))
    assert min(shown) >= 0
    assert all((r.value("preemptions_per_second") or 0) <= most + 5 for r in exporter.since(again))


def test_a_killed_server_leaves_nothing_behind(server: PacedServer, watching: Watching, findings: Findings) -> None:
    """After SIGKILL under load nothing of the pool is shown any more, the alarm included, and the exporter lives."""
    exporter = watching(server)
    with Load(server, seed=10) as load:
        overload(load)
        exporter.wait(lambda now: now.predicted or now.page.state() == "exhausted", 60, "the alarm")
        killed = time.time()
        server.kill()
        down = gone(exporter, "refused")
        last = exporter.next(2)
        load.wait(30)
    assert last.page.state() == "unknown"
    assert last.used is None
    assert not last.page.values("oom_predicted", risk="kv")
    assert not last.page.values("oom_probability", risk="kv")
    findings.note("killed", seconds_until_known=round(down.ended - killed, 1))
