"""The demo's plain output: one engine at one tick in one line."""

from exporter.snapshot import EngineStatus, Snapshot
from exporter.web.words import about, count, percent


def line(snapshot: Snapshot, status: EngineStatus) -> str:
    """Time, state, usage, headroom, probability, time to exhaustion, load, preemptions, driver."""
    assessment, reading, headroom = status.assessment, status.reading, status.headroom
    chance, left = assessment.probability.get(60.0), assessment.time_to_exhaustion_seconds
    parts = (
        f"t={snapshot.time:6.0f} s",
        f"{assessment.state:<9}",
        f"KV {percent(reading.kv_usage):>6}",
        f"free {count(headroom.tokens):>6} tokens = {count(headroom.requests):>4} requests",
        f"P60 {'–' if chance is None else f'{chance:.2f}'}",
        "no end in sight" if left is None else f"full in {about(left)}",
        f"running {count(reading.running)}, waiting {count(reading.waiting)}",
        f"preempted {count(reading.preemptions)}",
        f"driver {assessment.driver or '–'}",
    )
    return "  ".join(parts)
