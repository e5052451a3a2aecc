"""Servers of several engines, and of several front-ends for one engine."""

import time
from pathlib import Path

from tests_vllm.conftest import Watching
from tests_vllm.findings import Findings
from tests_vllm.known import off_by
from tests_vllm.load import Load
from tests_vllm.paced import PacedServer
from tests_vllm.waste import preemptions

ENGINES = ("0", "1")


def test_two_engines_are_told_apart(model: Path, place: Path, watching: Watching, findings: Findings) -> None:
    """Data parallel: each engine has its own pool, blocks, queue and state; together they hold what is known."""
    flags = ("--num-gpu-blocks-override", "256", "--data-parallel-size", "2")
    with PacedServer(model, place, "dp2", *flags) as server:
        exporter = watching(server)
        begun = time.time()
        with Load(server, seed=3) as load:
            requests = []
            for _ in range(24):
                requests.append(load.send(load.random.randint(20, 400), load.random.randint(200, 500)))
                time.sleep(0.3)
            findings.keep("vllm-0.32-dp2-loaded", server)
            load.wait(180)
            exporter.next()
        assert [request.fault for request in requests if request.fault] == []
        readings = exporter.since(begun)
        off = [off_by(requests, reading, ENGINES) for reading in readings]
        for engine in ENGINES:
            assert exporter.last.value("kv_capacity_blocks", engine=engine) == 255
            assert exporter.last.value("kv_calibration_ratio", engine=engine) == 1.0
            assert max(reading.value("kv_used_blocks", engine=engine) or 0 for reading in readings) > 30
        # The page is written by several processes here: a gauge may be a report older than the other's.
        findings.note("data parallel size 2", readings=len(off), most_blocks_off=max(o for o, _ in off))
        assert all(value <= live for value, live in off), off


def test_two_front_ends_count_once(model: Path, place: Path, watching: Watching, findings: Findings) -> None:
    """Two API servers share one page: counters are the sum of both, gauges are not, preemptions are exact."""
    flags = ("--num-gpu-blocks-override", "256", "--api-server-count", "2")
    with PacedServer(model, place, "front", *flags) as server:
        exporter = watching(server)
        begun = time.time()
        with Load(server, seed=4) as load:
            for _ in range(24):
                load.send(load.random.randint(20, 400), load.random.randint(300, 800))
            peak = 0.0
            exporter.next(2)
            findings.keep("vllm-0.32-two-api-servers", server)
            while load.live():
                reading = exporter.next(seconds=60)
                assert (reading.used or 0) <= 255
                told = sum(reading.page.values("requests").values())
                assert told <= len(load.sent), "no request is counted by both front-ends"
                peak = max(peak, told)
            exporter.next(2)
            counted = sum(exporter.status()["engines"][0]["history"]["preemptions"])
        happened = preemptions(server.events(begun))
        findings.note("two API servers", most_requests=peak, preemptions_by_the_scheduler=happened, counted=counted)
        assert happened > 0
        assert counted == happened
        assert peak >= 20
        assert exporter.last.value("kv_calibration_ratio") == 1.0
