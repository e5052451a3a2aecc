"""The embedded engine against the real scheduler, given the same requests."""

import math
from pathlib import Path

import pytest
from prometheus_client.samples import Sample

from exporter.demo.page import PageCollector
from tests.support.real_server import RUNS, compare, recorded_run
from tests.support.traces import LOADS, sharegpt_engine, sharegpt_preemptions, sharegpt_recording, trace

COUNTED_FROM_THE_FIRST_PASS = (
    "vllm:time_to_first_token_seconds_sum",
    "vllm:e2e_request_latency_seconds_sum",
)


@pytest.mark.parametrize("load", LOADS)
def test_every_forward_pass_is_vllms(load: str) -> None:
    """Each forward pass ends, holds, admits, preempts, finishes and shares exactly as vLLM 0.32.0's scheduler did."""
    recorded = trace(load)
    engine = recorded.engine()
    steps = [
        [
            round(step.end, 6),
            step.new_tokens,
            step.running,
            step.waiting,
            step.used_blocks,
            sorted(step.preempted),
            sorted(step.finished),
            engine.prefix_hits,
            engine.prefix_queries,
        ]
        for step in engine.steps(until=recorded.steps[-1][0] + 1.0)
    ]
    assert steps == list(recorded.steps)


def test_the_loads_are_hard_enough() -> None:
    """Together the recorded loads preempt and share in the hundreds, so that agreeing with them means something."""
    steps = [step for load in LOADS for step in trace(load).steps]
    assert sum(len(step[5]) for step in steps) > 200
    assert sum(trace(load).steps[-1][7] for load in LOADS) > 10_000


def test_the_recording_is_reproduced() -> None:
    """Every sample of the recorded page is the same at every second, latencies from arrival excepted."""
    engine = sharegpt_engine()
    page = PageCollector([engine], created=0.0)
    steps = engine.steps(until=1000.0)
    step = next(steps)
    usage_errors: list[float] = []
    for second, recorded in sharegpt_recording():
        while step.end < second:
            step = next(steps)
        shown = {_series(sample): sample.value for family in page.collect() for sample in family.samples}
        for name, value in recorded.items():
            if "usage_perc" in name:
                usage_errors.append(abs(shown[name] - value))
            if not name.startswith(COUNTED_FROM_THE_FIRST_PASS):
                assert math.isclose(shown[name], value, rel_tol=1e-6, abs_tol=1e-9), (second, name)
    assert len(usage_errors) == 241
    assert max(usage_errors) < 1e-9


def test_the_recorded_preemptions_happen_when_they_did() -> None:
    """All 160 preemptions of the recording come in the same forward passes."""
    steps = sharegpt_engine().steps(until=240.0)
    preempted = [(round(step.end, 3), len(step.preempted)) for step in steps if step.preempted]
    assert preempted == sharegpt_preemptions()


def _series(sample: Sample) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}}"


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name.partition(".")[0])
def test_a_real_server_is_followed(path: Path) -> None:
    """Beside a real server given the same requests, usage differs by at most 2 points and the load by 1 on average."""
    difference = compare(*recorded_run(path))
    assert difference.usage < 0.02
    assert difference.running < 1
    assert difference.waiting < 1
    for ours, real in (difference.passes, difference.preemptions):
        assert ours == pytest.approx(real, rel=0.05)
