"""How closely the embedded engine follows vLLM's scheduler on the same requests, and how fast it runs.

    python -m bench.demo_tracking

The loads are those of tests/data/demo. Differences are the largest of any forward pass (of any second for the
recording); usage is in points of the pool.
"""

import time

from exporter.demo.engine import DemoEngine
from exporter.demo.traffic import SCENARIOS
from tests.support.real_server import RUNS, compare, recorded_run
from tests.support.traces import LOADS, sharegpt_engine, sharegpt_recording, trace

FAST_SECONDS = 600.0


def main() -> None:
    print(f"{'load':<20}{'passes':>8}{'preempted':>11}{'usage':>8}{'running':>9}{'waiting':>9}")
    for load in LOADS:
        recorded = trace(load)
        steps = list(recorded.engine().steps(until=1e9))
        usable = recorded.config.limits.num_gpu_blocks - 1
        pairs = list(zip(steps, recorded.steps, strict=True))
        usage = max(abs(step.used_blocks - real[4]) / usable for step, real in pairs)
        running = max(abs(step.running - real[2]) for step, real in pairs)
        waiting = max(abs(step.waiting - real[3]) for step, real in pairs)
        row(load, len(steps), sum(len(step.preempted) for step in steps), usage, running, waiting)
    row("sharegpt-4090", *recording())
    for path in RUNS:
        real = compare(*recorded_run(path))
        print(
            f"\nbeside a real server ({path.name}), on average: usage {100 * real.usage:.2f} points, "
            f"running {real.running:.2f}, waiting {real.waiting:.2f};\n"
            f"passes {real.passes[0]} against {real.passes[1]}, "
            f"preemptions {real.preemptions[0]} against {real.preemptions[1]}"
        )
    print()
    for name in SCENARIOS:
        speed(name)


def row(load: str, passes: int, preempted: int, usage: float, running: float, waiting: float) -> None:
    print(f"{load:<20}{passes:>8}{preempted:>11}{100 * usage:>8.2f}{running:>9.0f}{waiting:>9.0f}")


def recording() -> tuple[int, int, float, float, float]:
    steps = list(sharegpt_engine().steps(until=245.0))
    at = 0
    usage = running = waiting = 0.0
    for second, page in sharegpt_recording():
        while steps[at].end < second:
            at += 1
        step = steps[at]
        shown = {name.partition("{")[0]: value for name, value in page.items()}
        usage = max(usage, abs(step.used_blocks / 2587 - shown["vllm:kv_cache_usage_perc"]))
        running = max(running, abs(step.running - shown["vllm:num_requests_running"]))
        waiting = max(waiting, abs(step.waiting - shown["vllm:num_requests_waiting"]))
    return at + 1, sum(len(step.preempted) for step in steps[: at + 1]), usage, running, waiting


def speed(name: str) -> None:
    engine = DemoEngine(arrivals=SCENARIOS[name].requests(seed=0))
    begun = time.process_time()
    steps = list(engine.steps(FAST_SECONDS))
    spent = time.process_time() - begun
    running = sum(step.running for step in steps) / len(steps)
    print(f"{name:<15} {running:5.1f} running, {FAST_SECONDS / spent:6.0f} engine seconds per second of one core")


if __name__ == "__main__":
    main()
