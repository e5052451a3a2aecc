"""What binds before the pool does: seats, adapters; and a request that no pool can serve."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests_vllm.conftest import USABLE, Watching
from tests_vllm.findings import Findings
from tests_vllm.load import Load
from tests_vllm.paced import BLOCK_SIZE, PacedServer
from tests_vllm.tiny import make_adapter

SEATS = 4


@pytest.fixture(scope="module")
def seated(model: Path, place: Path) -> Iterator[PacedServer]:
    """Four sequences at most, and of two adapters one at a time."""
    adapters = [f"{name}={make_adapter(place / f'adapter-{name}')}" for name in ("a", "b")]
    flags = ["--num-gpu-blocks-override", "256", "--max-num-seqs", str(SEATS)]
    flags += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", "8", "--lora-modules", *adapters]
    with PacedServer(model, place, "seated", *flags) as server:
        yield server


def test_seats_that_bind_are_no_alarm(seated: PacedServer, watching: Watching, findings: Findings) -> None:
    """Requests that wait for one of `--max-num-seqs` seats need no KV: the driver is sequence_cap, the alarm is off."""
    exporter = watching(seated)
    begun = time.time()
    with Load(seated, seed=5) as load:
        for _ in range(24):
            load.send(load.random.randint(50, 300), load.random.randint(150, 300), stream=False)
        while load.live():
            exporter.next(seconds=60)
    assert not seated.events(begun)
    queued = [r for r in exporter.since(begun) if (r.value("requests", state="waiting") or 0) >= 2]
    named = [reading.driver or "not yet" for reading in queued]
    findings.note(
        "max-num-seqs",
        readings_with_a_queue=len(queued),
        drivers={name: named.count(name) for name in sorted(set(named))},
        alarms=sum(reading.predicted for reading in exporter.since(begun)),
        most_used_ratio=max(reading.value("kv_used_ratio") or 0 for reading in queued),
    )
    assert len(queued) >= 8
    assert {reading.value("requests", state="running") for reading in queued} <= {SEATS, SEATS - 1}
    assert not any(reading.predicted for reading in exporter.since(begun))
    assert named.count("sequence_cap") * 2 > len(named)


def test_waiting_is_told_by_reason(seated: PacedServer, watching: Watching, findings: Findings) -> None:
    """Who waits for a seat waits for capacity; who waits for the other adapter's place is deferred."""
    exporter = watching(seated)
    with Load(seated, seed=6) as load:
        load.send(50, 600, stream=False, model="a")
        exporter.next(2)
        load.send(50, 20, stream=False, model="b")
        exporter.next(2)
        deferred = waiting_by_reason(exporter.status())
        findings.keep("vllm-0.32-one-engine-adapter-deferred", seated)
        load.wait(60)
        for _ in range(SEATS + 3):
            load.send(50, 300, stream=False)
        exporter.next(2)
        capacity = waiting_by_reason(exporter.status())
        load.abort()
    findings.note("waiting by reason", adapter_taken=deferred, seats_taken=capacity)
    assert deferred == {"capacity": 0, "deferred": 1}
    assert capacity == {"capacity": 3, "deferred": 0}


def waiting_by_reason(document: object) -> dict[str, float]:
    """How many wait and why, as the status document says."""
    assert isinstance(document, dict)
    reasons: dict[str, float] = document["engines"][0]["load"]["waiting_by_reason"]
    return reasons


def test_one_request_can_fill_the_pool_and_none_is_longer(
    server: PacedServer, watching: Watching, findings: Findings
) -> None:
    """VLLM refuses what could never fit; the longest it takes holds every block, and who comes then waits.

    Nothing is preempted, so nothing is exhausted, and it is no stall: a token comes with every step.
    """
    exporter = watching(server)
    begun = time.time()
    with Load(server, seed=13) as load:
        load.send(100, 600)
        exporter.wait(lambda now: bool(now.used) and now.page.state() == "ok", 60, "enough readings")
        load.wait(30)
        exporter.wait(lambda now: now.used == 0, 30, "an empty pool")
        refused = load.send(USABLE * BLOCK_SIZE + 1, 1)
        load.wait(30)
        assert refused.fault is not None
        assert refused.fault.startswith("400")
        assert exporter.next(2).used == 0
        longest = load.send(USABLE * BLOCK_SIZE - 300, 300)
        exporter.wait(lambda now: (now.used or 0) >= USABLE - 9, 60, "the longest request")
        load.send(400, 10)
        most = 0.0
        while not longest.done:
            reading = exporter.next()
            most = max(most, reading.used or 0)
            assert reading.page.state() in ("ok", "watch", "predicted"), exporter.status()["engines"][0]["state"]
        load.wait(60)
    readings = exporter.since(begun)
    findings.note(
        "a request as long as the pool",
        most_blocks_used=most,
        alarms=sum(reading.predicted for reading in readings),
        readings=len(readings),
    )
    assert longest.fault is None
    assert most >= USABLE - 1
    assert not server.events(begun)
