"""What the exporter says of each scenario of the demo, in engine time: as fast as this machine goes.

    python -m bench.demo_scenarios [--seconds 300] [--seeds 3] [--scenario NAME …]

Prints for each: preemptions, when the first came, how long before it the alarm was on, the share of calm seconds
(no preemption in the 60 s before nor the 90 s after) with the alarm on, and the drivers named while it was on.
"""

import argparse
from collections import Counter
from collections.abc import Iterator

from exporter.assembly import build_monitor
from exporter.demo.engine import DemoEngine
from exporter.demo.server import DemoServer
from exporter.demo.traffic import SCENARIOS
from exporter.settings import load
from exporter.snapshot import EngineStatus


def watched(name: str, seed: int, seconds: int) -> Iterator[tuple[float, EngineStatus, int]]:
    """Each second of engine time: the exporter's view of the engine, and preemptions in that second as they were."""
    engine = DemoEngine(arrivals=SCENARIOS[name].requests(seed))
    with DemoServer([engine], speed=0) as server:
        limits = engine.config.limits
        flags = {
            "vllm_url": server.url,
            "gpus": "none",
            "host": "none",
            "max_num_seqs": str(limits.max_num_seqs),
            "max_num_batched_tokens": str(limits.max_num_batched_tokens),
        }
        monitor = build_monitor(load(flags), clock=server.now)
        try:
            before = 0
            for _ in range(seconds):
                server.advance(1.0)
                (status,) = monitor.tick().engines
                yield server.now(), status, engine.preempted - before
                before = engine.preempted
        finally:
            monitor.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scenario", nargs="*", default=list(SCENARIOS))
    options = parser.parse_args()
    print(f"{'scenario':<15}{'seed':>4}{'preempted':>11}{'first':>8}{'alarm before':>14}{'calm on':>9}  drivers")
    for name in options.scenario:
        for seed in range(options.seeds):
            report(name, seed, options.seconds)


def report(name: str, seed: int, seconds: int) -> None:
    seen = list(watched(name, seed, seconds))
    times = [now for now, _, preempted in seen if preempted]
    alarms = [now for now, status, _ in seen if status.assessment.predicted]
    first = times[0] if times else None
    lead = None
    if first is not None:
        before = [now for now in alarms if first - 60 <= now < first]
        lead = first - before[0] if before else 0.0
    calm = [
        (now, status)
        for now, status, _ in seen
        if now < seconds - 90 and not any(now - 60 <= time <= now + 90 for time in times)
    ]
    calm_on = sum(bool(status.assessment.predicted) for _, status in calm) / len(calm) if calm else None
    drivers = Counter(status.assessment.driver for _, status, _ in seen if status.assessment.predicted)
    print(
        f"{name:<15}{seed:>4}{sum(preempted for *_, preempted in seen):>11}"
        f"{'–' if first is None else f'{first:.0f} s':>8}{'–' if lead is None else f'{lead:.0f} s':>14}"
        f"{'–' if calm_on is None else f'{calm_on:.1%}':>9}  {dict(drivers.most_common())}",
        flush=True,
    )


if __name__ == "__main__":
    main()
