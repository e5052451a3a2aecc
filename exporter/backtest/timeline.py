"""One onset drawn: usage, probability, alarm and preemptions on one time axis, as inline SVG."""

from collections.abc import Sequence
from itertools import pairwise

from exporter.backtest.replaying import Moment
from exporter.web.markup import Markup, join, tag, void

WIDTH, HEIGHT, ALARM_HEIGHT = 640.0, 140.0, 10.0


def timeline(moments: Sequence[Moment], events: Sequence[float], onset: float) -> Markup:
    """The minutes around `onset` (seconds); usage and probability from 0 at the bottom to 1 at the top."""
    if not moments:
        return Markup()
    first, last = moments[0].time, max(moments[-1].time, moments[0].time + 1.0)

    def x(time: float) -> float:
        return (time - first) / (last - first) * WIDTH

    def line(values: Sequence[tuple[float, float | None]], kind: str) -> Markup:
        known = [f"{x(time):.1f},{HEIGHT * (1 - min(1.0, value)):.1f}" for time, value in values if value is not None]
        return tag("polyline", points=" ".join(known), class_=kind)

    alarms = [
        void(
            "rect",
            x=x(a.time),
            y=HEIGHT + 4,
            width=max(1.0, x(b.time) - x(a.time)),
            height=ALARM_HEIGHT,
            class_="alarm",
        )
        for a, b in pairwise(moments)
        if a.alarm
    ]
    marks = [
        void("line", x1=x(e), x2=x(e), y1=0, y2=HEIGHT, class_="onset" if e == onset else "preemption")
        for e in events
        if first <= e <= last
    ]
    described = f"From {onset - first:.0f} seconds before the onset to {last - onset:.0f} after it"
    return tag(
        "svg",
        tag("title", described),
        void("rect", x=0, y=0, width=WIDTH, height=HEIGHT, class_="frame"),
        *marks,
        line([(m.time, m.usage) for m in moments], "usage"),
        line([(m.time, m.probability) for m in moments], "probability"),
        join(*alarms),
        viewBox=f"0 0 {WIDTH:g} {HEIGHT + ALARM_HEIGHT + 8:g}",
        role="img",
    )
