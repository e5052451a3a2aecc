"""Blocks, capacity, headroom, queues and preemptions as the exporter tells them, against requests the test knows."""

import time
from collections.abc import Callable

from tests_vllm.conftest import USABLE, Watching
from tests_vllm.exporter import Reading
from tests_vllm.findings import Findings
from tests_vllm.known import in_the_engine, off_by
from tests_vllm.load import Load
from tests_vllm.paced import BLOCK_SIZE, PacedServer
from tests_vllm.waste import preemptions, recomputed_tokens


def test_headroom_in_requests_is_how_many_more_fit(server: PacedServer, watching: Watching, findings: Findings) -> None:
    """As many typical requests as the exporter says are admitted at once, and one more has to wait."""
    exporter = watching(server)
    with Load(server) as load:
        for _ in range(8):
            load.send(400, 112)
        load.wait(60)
        told: list[int] = []
        for already in (0, 3):
            # So slow that nobody's context grows by a block while the exporter looks.
            server.pace(0.5)
            held = [load.send(32 * 30 + 2, 60) for _ in range(already)]
            exporter.wait(_queues(already, 0), 30, "those that are there already")
            headroom = exporter.next(2).value("kv_requests")
            assert headroom is not None
            requests = [load.send(481, 31) for _ in range(int(headroom))]
            everyone = already + int(headroom)
            exporter.wait(_queues(everyone, 0), 30, "as many as were said to fit")
            one_more = load.send(481, 31)
            after = exporter.wait(_queues(everyone, 1), 30, "one more, waiting")
            assert after.value("kv_requests") == 0
            told.append(int(headroom))
            server.pace(0.02)
            load.wait(60, *held, *requests, one_more)
    findings.note("headroom in requests", told_and_admitted=told, one_more_waited=True)
    assert told == [15, 10]


def _queues(running: int, waiting: int) -> Callable[[Reading], bool]:
    def seen(now: Reading) -> bool:
        told = now.value("requests", state="running"), now.value("requests", state="waiting")
        return told == (running, waiting)

    return seen


def test_capacity_is_the_engines_and_the_arithmetics(
    server: PacedServer, watching: Watching, findings: Findings
) -> None:
    """Tokens and blocks are those the engine logs, and the arithmetic from config.json alone gives the same."""
    reading = watching(server).next()
    told = {
        "tokens": reading.value("kv_capacity_tokens", source="engine"),
        "analytic_tokens": reading.value("kv_capacity_tokens", source="analytic"),
        "blocks": reading.value("kv_capacity_blocks"),
        "calibration_ratio": reading.value("kv_calibration_ratio"),
    }
    findings.note("capacity", **told)
    assert told == {"tokens": 8192, "analytic_tokens": 8192, "blocks": USABLE, "calibration_ratio": 1.0}
    assert "KV cache size: 8,192 tokens" in server.log.read_text()


def test_used_blocks_are_those_of_the_requests_that_live(
    server: PacedServer, watching: Watching, findings: Findings
) -> None:
    """At every reading the used blocks are the sum over live requests of their context, ±1 block for each."""
    exporter = watching(server)
    begun = time.time()
    with Load(server, seed=1) as load:
        requests = []
        for _ in range(30):
            prompt, output = load.random.randint(20, 500), load.random.randint(100, 500)
            while load.demand(BLOCK_SIZE) + -(-(prompt + output) // BLOCK_SIZE) > USABLE:
                time.sleep(0.05)
            requests.append(load.send(prompt, output))
            time.sleep(load.random.uniform(0.2, 0.8))
        load.wait(120)
        exporter.next()
    assert [request.fault for request in requests if request.fault] == []
    readings = exporter.since(begun)
    off, live = zip(*(off_by(requests, reading) for reading in readings), strict=True)
    assert all(reading.used is not None for reading in readings)
    assert not server.events(begun), "the load was meant to fit"
    findings.note(
        "used blocks",
        readings=len(off),
        most_live_requests=max(live),
        readings_exact=sum(value == 0 for value in off),
        most_blocks_off=max(off),
    )
    assert len(off) >= 15
    assert max(live) >= 8
    assert all(value <= alive for value, alive in zip(off, live, strict=True)), list(zip(off, live, strict=True))


def test_preemptions_and_queues_are_counted_exactly(
    server: PacedServer, watching: Watching, findings: Findings
) -> None:
    """Running plus waiting are the live requests; preemptions are the scheduler's own, one for one."""
    before = preemptions_on(server.page())
    exporter = watching(server)
    begun = time.time()
    with Load(server, seed=2) as load:
        requests = [load.send(load.random.randint(50, 400), load.random.randint(300, 900)) for _ in range(30)]
        seen: list[tuple[Reading, float]] = []
        while load.live():
            reading = exporter.next(seconds=60)
            told = reading.value("requests", state="running"), reading.value("requests", state="waiting")
            assert None not in told
            seen.append((reading, sum(value or 0.0 for value in told)))
        last = exporter.next(2)
    off = []
    for reading, total in seen:
        least, most = in_the_engine(requests, reading)
        off.append(max(least - total, total - most, 0))
    events = server.events(begun)
    happened = preemptions(events)
    counted = sum(exporter.status()["engines"][0]["history"]["preemptions"])
    findings.keep("vllm-0.32-one-engine-after-preemptions", server)
    findings.note("queues", readings=len(off), most_requests_off=max(off))
    findings.note("preemptions", by_the_scheduler=happened, by_the_exporter=counted)
    assert happened >= 10
    assert counted == happened == preemptions_on(server.page()) - before
    per_second, again = last.value("preemptions_per_second"), last.value("recomputed_tokens_per_second")
    assert per_second
    assert again
    each = recomputed_tokens(events) / happened
    findings.note("recomputed", tokens_for_each_preemption=round(each), told=round(again / per_second))
    assert max(off) == 0, off


def preemptions_on(page: str) -> float:
    """The server's own counter."""
    return float(next(x for x in page.splitlines() if x.startswith("vllm:num_preemptions_total")).split()[-1])
