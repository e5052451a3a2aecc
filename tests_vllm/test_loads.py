"""Loads that mislead: shared prefixes, clients that hang up."""

import time
from collections.abc import Callable

from tests_vllm.conftest import Watching
from tests_vllm.exporter import Reading
from tests_vllm.findings import Findings
from tests_vllm.known import LAG_SECONDS
from tests_vllm.load import Load
from tests_vllm.paced import BLOCK_SIZE, PacedServer

SHARED_BLOCKS = 40


def test_shared_prefixes_are_counted_once(server: PacedServer, watching: Watching, findings: Findings) -> None:
    """Twelve requests that share forty blocks hold those once, and nothing is predicted that does not come."""
    exporter = watching(server)
    begun = time.time()
    off, alone = [], []
    with Load(server, seed=11) as load:
        shared = load.prompt(SHARED_BLOCKS * BLOCK_SIZE)
        load.send(shared + load.prompt(10), 10)
        load.wait(30)
        for _ in range(30):
            # Each holds up to twelve blocks of its own; at most fourteen of them beside the shared ones fit.
            while len(load.live()) >= 14:
                time.sleep(0.05)
            load.send(shared + load.prompt(load.random.randint(20, 60)), load.random.randint(200, 300))
            time.sleep(0.5)
        load.wait(120)
        exporter.next()
    for reading in exporter.since(begun):
        moments = (reading.begun - LAG_SECONDS, reading.begun, reading.ended, reading.ended + LAG_SECONDS)
        live = [[request for request in load.sent if request.live(at)] for at in moments]
        whole = [sum(r.blocks(BLOCK_SIZE, at) for r in here) for at, here in zip(moments, live, strict=True)]
        once = [held - SHARED_BLOCKS * max(0, len(here) - 1) for held, here in zip(whole, live, strict=True)]
        starting = any(not r.generated(at) for at, here in zip(moments, live, strict=True) for r in here)
        assert reading.used is not None
        if not starting:
            off.append((max(min(once) - reading.used, reading.used - max(once), 0), max(map(len, live))))
            alone.append(max(whole))
    findings.note(
        "shared prefixes",
        readings=len(off),
        most_blocks_off=max(value for value, _ in off),
        blocks_if_nothing_were_shared=max(alone),
        most_blocks_used=max(reading.used or 0 for reading in exporter.since(begun)),
        alarms=sum(reading.predicted for reading in exporter.since(begun)),
    )
    assert not server.events(begun), "the load was meant to fit"
    assert max(alone) > 255, "without sharing it would not fit"
    assert all(value <= live for value, live in off), off
    assert not any(reading.predicted for reading in exporter.since(begun))


def test_clients_that_hang_up_leave_nothing_behind(server: PacedServer, watching: Watching, findings: Findings) -> None:
    """After storms of aborts the pool is empty within seconds, no rate is negative, and the state returns to ok."""
    exporter = watching(server)
    begun = time.time()
    emptied = []
    with Load(server, seed=12) as load:
        for _ in range(5):
            for _ in range(40):
                load.send(load.random.randint(50, 600), 1500, stream=False)
            exporter.next(2)
            aborted = time.time()
            load.abort()
            empty = exporter.wait(_empty_after(aborted), 30, "an empty pool")
            emptied.append(round(empty.ended - aborted, 1))
    after = exporter.wait(lambda now: now.page.state() == "ok" and not now.predicted, 90, "the state ok")
    shown = [value for r in exporter.since(begun) if (value := r.value("preemptions_per_second")) is not None]
    findings.note(
        "abort storms",
        aborted=len(load.sent),
        seconds_until_empty=emptied,
        seconds_until_ok=round(after.ended - aborted, 1),
    )
    assert min(shown) >= 0


def _empty_after(moment: float) -> Callable[[Reading], bool]:
    def empty(now: Reading) -> bool:
        return now.begun > moment and now.used == 0 and sum(now.page.values("requests").values()) == 0

    return empty
