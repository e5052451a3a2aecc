"""The report for a pipe or a file: plain text, one block an engine."""

from collections.abc import Sequence

from exporter.top.feeds import Seen
from exporter.top.report import facts, gpu, host, name, places, troubles
from exporter.top.sketch import pool_rows

WIDTH = 78
CHART_HEIGHT = 6


def plain(seen: Sequence[Seen]) -> str:
    """Everything there is to say of every server."""
    lines: list[str] = []
    everyone = places(seen)
    for one in seen:
        if one.status is None:
            lines += [f"{one.server}: {one.fault}", ""]
            continue
        verdict = one.status.verdict
        lines += [f"{one.server}: {verdict.state}: {verdict.sentence}", ""]
        for place in (place for place in everyone if place.status is one.status):
            engine = place.engine
            lines.append(f"{name(place, everyone)} ({engine.model_name}): {engine.state}")
            lines += [f"  {title:>10}  {text}" for title, text in facts(engine)]
            drawing = ("".join(text for text, _ in row).rstrip() for row in pool_rows(engine, WIDTH, CHART_HEIGHT))
            lines += ["", *drawing, ""]
        lines += [f"GPU {device.gpu}: {gpu(device)}" for device in one.status.devices]
        if one.status.host is not None:
            lines.append(f"host memory of the {host(one.status.host)}")
    lines += troubles([one for one in seen if one.status is not None])
    return "\n".join(lines).rstrip() + "\n"
