"""The demo's figures as people read them: pure text, for the plain output and for the view."""

from collections.abc import Mapping

from exporter.forecast.assessment import Assessment
from exporter.snapshot import EngineStatus, Snapshot

UNKNOWN = "–"
DRIVERS: Mapping[str, str] = {
    "long_context": "long contexts",
    "burst_concurrency": "a burst of requests",
    "prefill_spike": "a spike of long prompts",
    "mixed": "several things at once",
    "sequence_cap": "the limit on sequences",
    "none": "nothing in particular",
}


def percent(ratio: float | None) -> str:
    """0.873 → 87 %."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.0f} %"


def count(number: float | None) -> str:
    """12345.6 → 12,346."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def gibibytes(size: float | None) -> str:
    """Bytes → 5.05 GiB."""
    return UNKNOWN if size is None else f"{size / 2**30:.2f} GiB"


def seconds(span: float | None) -> str:
    """When the pool runs out, in words."""
    if span is None:
        return "not in sight"
    if span <= 1:
        return "now"
    return f"in about {span:.0f} s" if span < 120 else f"in about {span / 60:.0f} min"


def driver(assessment: Assessment) -> str:
    """What drives the risk, in words."""
    return UNKNOWN if assessment.driver is None else DRIVERS[assessment.driver]


def chance(assessment: Assessment, horizon: float) -> float | None:
    """The probability for one horizon, where the forecast gives it."""
    return assessment.probability.get(horizon)


def sentence(assessment: Assessment) -> str:
    """Answer the first question: is it all right."""
    if assessment.state == "predicted":
        when = assessment.time_to_exhaustion_seconds
        told = "KV cache is predicted to run out" + ("" if when is None else " " + seconds(when))
        caused = assessment.driver not in (None, "none")
        return f"{told}; driven by {driver(assessment)}" if caused else told
    return assessment.reason


def line(snapshot: Snapshot, status: EngineStatus) -> str:
    """One engine at one tick in one line."""
    assessment, reading = status.assessment, status.reading
    free, requests = status.headroom.tokens, status.headroom.requests
    parts = (
        f"t={snapshot.time:6.0f} s",
        f"{assessment.state:<9}",
        f"KV {percent(reading.kv_usage):>5}",
        f"free {count(free):>6} tokens = {count(requests):>4} requests",
        f"P60 {_two_digits(chance(assessment, 60.0))}",
        f"out {seconds(assessment.time_to_exhaustion_seconds)}",
        f"running {count(reading.running)}, waiting {count(reading.waiting)}",
        f"preempted {count(reading.preemptions)}",
        f"driver {assessment.driver or UNKNOWN}",
    )
    return "  ".join(parts)


def _two_digits(probability: float | None) -> str:
    return UNKNOWN if probability is None else f"{probability:.2f}"
