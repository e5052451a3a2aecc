"""How long before the first preemption the alarm is on, on the embedded engine: `python -m bench.ramps [--seeds 1 2]`.

After a calm of 90 s that holds two fifths of the pool, arrivals double every 10 to 30 s, or prompts and answers are
three times as long, or five times as many come, or spikes of long prompts. Time is virtual; a forward pass takes 0.1 s.
The loads are those of `tests_vllm/test_alarm.py`, which plays them to a real server.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from functools import partial

from exporter.assembly import build_monitor
from exporter.demo.engine import DemoEngine, EngineConfig, StepTime
from exporter.demo.scheduler import Limits, Request
from exporter.demo.server import DemoServer
from exporter.settings import load
from tests_vllm.traffic import Traffic, burst, crowd, long_contexts, prefill_spike, under_way

RATE, CALM_SECONDS, PASS_SECONDS, MOST_SECONDS = 1.0, 90, 0.1, 250
DOUBLINGS = (10, 12, 14, 16, 18, 20, 22, 24, 27, 30)
OTHERS: dict[str, Callable[[float, float], Traffic]] = {
    "three times as long": long_contexts,
    "five times as many": burst,
    "spikes of long prompts": prefill_spike,
}
LIMITS = Limits(num_gpu_blocks=1024, block_size=32, max_num_batched_tokens=2048, max_model_len=4096)


def requests(traffic: Traffic, seed: int) -> Iterator[Request]:
    """Those that are under way when it begins, and those that come."""
    yield from (Request(0.0, prompt, left) for prompt, left in under_way(30, seed))
    for at, prompt, output in traffic.arrivals(seed):
        yield Request(at, prompt, output)


def lead(traffic: Traffic, seed: int) -> float | None:
    """Seconds from the alarm to the first preemption, negative when it came late; `None` when one did not come."""
    config = EngineConfig(limits=LIMITS, step_time=StepTime(PASS_SECONDS, 0.0, 0.0))
    engine = DemoEngine(config, requests(traffic, seed))
    alarm = first = None
    with DemoServer([engine], speed=0) as server:
        settings = load({"vllm_url": server.url, "gpus": "none", "host": "none"})
        monitor = build_monitor(settings, server.now, lambda: 1.7e9 + server.now())
        for second in range(1, MOST_SECONDS):
            server.advance(1.0)
            monitor.tick()
            on = monitor.latest is not None and bool(monitor.latest.engines[0].assessment.predicted)
            alarm = second if alarm is None and on else alarm
            first = second if first is None and engine.preempted else first
            if alarm is not None and first is not None:
                break
        monitor.close()
    return None if alarm is None or first is None else float(first - alarm)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    seeds = parser.parse_args().seeds
    ramps: dict[str, Callable[[float, float], Traffic]] = {
        f"doubling every {seconds} s": partial(crowd, doubling=seconds) for seconds in DOUBLINGS
    }
    found = {}
    for name, made in {**ramps, **OTHERS}.items():
        found[name] = [lead(made(RATE, CALM_SECONDS), seed) for seed in seeds]
        print(name, *found[name], flush=True)
    leads = [one for name in ramps for one in found[name] if one is not None]
    print(
        f"ramps: {statistics.fmean(leads):.1f} s in the mean, {min(leads):.0f} to {max(leads):.0f} s, of {len(leads)}"
    )


if __name__ == "__main__":
    main()
