"""How numbers, states and loads are said to people."""

import math
import re

from exporter.forecast.assessment import Driver, State

DRIVERS: dict[Driver, str] = {
    "long_context": "longer contexts",
    "burst_concurrency": "a burst of requests",
    "prefill_spike": "a spike of prompt tokens",
    "mixed": "more and longer requests",
    "sequence_cap": "the cap on running sequences",
    "none": "nothing in particular",
}

WAITING: dict[str, str] = {"capacity": "for room in the engine", "deferred": "deferred by the scheduler"}

RULES: dict[str, str] = {
    "reported": "reported by the engine",
    "max_concurrency": "from the engine's maximum concurrency",
    "arithmetic": "from the model's arithmetic",
    "blocks": "from blocks × block size",
}

UNITS = re.compile(r"(?<=\d) (?=(?:%|s|min|h|days|B|[KMGT]iB)\b|%)")

SEVERITY: tuple[State, ...] = ("asleep", "ok", "unknown", "watch", "stalled", "predicted", "exhausted")
"""States in rising need of attention."""


def count(value: float | None) -> str:
    """A whole number with separators, shortened above a million; a dash when not known."""
    if value is None:
        return "–"
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.2f} M"
    return f"{value:,.0f}"


def size(value: float | None) -> str:
    """Bytes in the binary unit that leaves one to three digits before the point."""
    if value is None:
        return "–"
    amount, unit = abs(float(value)), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1000:
            break
        amount, unit = amount / 1024, larger
    digits = 0 if unit == "B" or amount >= 100 else 1
    return f"{'−' if value < 0 else ''}{amount:.{digits}f} {unit}"


def percent(ratio: float | None, digits: int = 0) -> str:
    """A ratio as a percentage; what is not quite nothing or not quite all is not rounded to it."""
    if ratio is None:
        return "–"
    rounded = round(100 * ratio, digits)
    if ratio > 0 and rounded == 0:
        return f"< {10**-digits:g} %"
    if ratio < 1 and rounded == 100:
        return f"> {100 - 10**-digits:g} %"
    return f"{rounded:.{digits}f} %"


def about(seconds: float) -> str:
    """A duration in the precision a forecast deserves: 4 s, 40 s, 12 min, 5 h, 3 days."""
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    if seconds < 97.5:
        return f"{5 * round(seconds / 5)} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{round(seconds / 3600)} h"
    return f"{round(seconds / 86400)} days"


def ago(seconds: float | None) -> str:
    """An age in words; "never" where there is none."""
    return "never" if seconds is None else "just now" if seconds < 1.5 else f"{about(seconds)} ago"


def rate(value: float | None) -> str:
    """A number of few digits: 0, 0.02, 1.4, 33."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    return f"{value:.2g}" if abs(value) < 10 else f"{value:,.0f}"


def growth(value: float | None) -> str:
    """Bytes per second as a steady growth by the hour."""
    if value is None:
        return "not watched for long enough"
    return "steady" if value == 0 else f"{'+' if value > 0 else ''}{size(value * 3600)} an hour"


def unbroken(text: str) -> str:
    """The text with every number tied to its unit, so that no line breaks between them."""
    return UNITS.sub("\u00a0", text)


def plural(number: float, what: str) -> str:
    """A number with its noun: 1 request, 12 requests."""
    return f"{count(number)} {what}" if math.isclose(number, 1) else f"{count(number)} {what}s"
