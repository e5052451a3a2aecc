"""What binds before the pool does: seats, adapters; and a request that no pool can serve."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests_vllm.conftest import Watching
from tests_vllm.findings import Findings
from tests_vllm.load import Load
from tests_vllm.paced import BLOCK_SIZE, PacedServer
from tests_vllm.tiny import make_adapter, make_model

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
        findings.keep("vllm-0.32-adapter-deferred", seated)
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


def test_a_request_longer_than_the_pool_stalls_it(place: Path, watching: Watching, findings: Findings) -> None:
    """A prompt that can never be admitted keeps everyone behind it waiting: after two minutes that is `stalled`.

    vLLM does not start with a context longer than its pool, but takes one as long as the pool with its null block.
    """
    length = 256 * BLOCK_SIZE
    model = make_model(place / "long", max_position_embeddings=length)
    with PacedServer(model, place, "long", "--num-gpu-blocks-override", "256", max_model_len=length) as server:
        exporter = watching(server)
        with Load(server) as load:
            begun = time.time()
            load.send(length - 20, 10)
            exporter.next(2)
            load.send(50, 10)
            exporter.next(3)
            assert exporter.last.value("requests", state="waiting") == 2
            stalled = exporter.wait(lambda now: now.page.state() == "stalled", 150, "the state stalled")
            findings.note(
                "a request longer than the pool",
                seconds_until_stalled=round(stalled.ended - begun, 1),
                said=exporter.status()["engines"][0]["reason"],
            )
            assert not stalled.predicted
