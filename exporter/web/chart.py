"""The KV pool as a picture: the past up to now on the left, the projection on the right, one scale of usage."""

import math

from exporter.web.markup import Markup, join, tag
from exporter.web.status import Engine
from exporter.web.words import about, percent, plural

WIDE, HIGH = 1000, 1000
"""The drawing's own units; it is stretched to the place it gets."""
PAST_SHARE = 74
"""Percent of the width that the past takes; the projection has its own, wider scale of time."""
AHEAD_SECONDS = 60.0
MOST = 2.0
"""What is above this share of the pool is cut off there; its number is still told."""
MARGIN = 1.1
"""Room above the highest value for its label."""


def pool_chart(engine: Engine, name: str) -> Markup:
    """The figure of one engine's pool; `name` tells its parts apart from other charts of the page."""
    outlook = _outlook(engine)
    highest = max((high for _, _, high in outlook), default=1.0)
    top = MARGIN * min(MOST, max(1.0, math.ceil(10 * highest) / 10))
    past = engine.history
    drawing = tag(
        "svg",
        tag("title", "KV cache in use", id=f"{name}-title"),
        tag("desc", describe(engine), id=f"{name}-desc"),
        tag("rect", x=f"{PAST_SHARE}%", y="0", width=f"{100 - PAST_SHARE}%", height="100%", class_="ahead"),
        *(_level(ratio, top) for ratio in (0.25, 0.5, 0.75)),
        _panel(_past_shapes(engine, top), "0", f"{PAST_SHARE}%"),
        _panel(_ahead_shapes(outlook, top), f"{PAST_SHARE}%", f"{100 - PAST_SHARE}%"),
        _level(1.0, top, "full"),
        tag("line", x1=f"{PAST_SHARE}%", x2=f"{PAST_SHARE}%", y1="0", y2="100%", class_="now"),
        *(_label(ratio, top) for ratio in (0.5, 1.0)),
        *_outlook_labels(outlook, top),
        class_="pool-chart",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )
    axis = tag(
        "div",
        tag("div", *_ticks(past.window_seconds), class_="past"),
        tag("div", tag("span", "now"), tag("span", f"+{AHEAD_SECONDS:.0f} s"), class_="next"),
        class_="axis",
        aria_hidden="true",
    )
    return tag("figure", drawing, axis, _legend(engine, bool(outlook)), class_="pool")


def describe(engine: Engine) -> str:
    """The chart in words."""
    past = engine.history
    known = [ratio for ratio in past.used_ratio if ratio is not None]
    said = []
    if engine.pool.used_ratio is not None:
        said.append(f"Now {percent(engine.pool.used_ratio)} of the pool is in use")
    if known:
        window = about(past.window_seconds)
        said.append(f"in the last {window} it was between {percent(min(known))} and {percent(max(known))}")
    happened = [(ago, n) for ago, n in zip(past.seconds_ago, past.preemptions, strict=True) if n]
    if happened:
        total, last = sum(n for _, n in happened), happened[-1][0]
        said.append(f"{plural(total, 'preemption')} in that time, the last about {about(last)} ago")
    elif known:
        said.append("no preemption in that time")
    outlook = _outlook(engine)
    if outlook:
        ahead, low, high = outlook[-1]
        said.append(f"in {about(ahead)} the projection is {percent(low)}, in a bad case {percent(high)}")
    else:
        said.append("no projection")
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _outlook(engine: Engine) -> list[tuple[float, float, float]]:
    """(seconds ahead, median, highest quantile) from now to the edge; empty without a projection."""
    by_horizon: dict[float, list[float]] = {}
    for demand in engine.forecast.demand:
        if demand.horizon_seconds <= AHEAD_SECONDS:
            by_horizon.setdefault(demand.horizon_seconds, []).append(demand.ratio)
    now = engine.pool.used_ratio
    if not by_horizon or now is None:
        return []
    return [(0.0, now, now), *((ahead, min(r), max(r)) for ahead, r in sorted(by_horizon.items()))]


def _panel(shapes: Markup, x: str, width: str) -> Markup:
    box = {"viewBox": f"0 0 {WIDE} {HIGH}", "preserveAspectRatio": "none"}
    return tag("svg", shapes, x=x, y="0", width=width, height="100%", **box)


def _past_shapes(engine: Engine, top: float) -> Markup:
    past = engine.history
    across, down = WIDE / past.window_seconds, HIGH / top
    most = min(MOST, top)
    xs = [round(WIDE - across * min(ago, past.window_seconds)) for ago in past.seconds_ago]
    shapes: list[Markup] = []
    start = 0
    for end, ratio in enumerate((*past.used_ratio, None)):
        if ratio is None:
            shapes += _run(
                xs[start:end], [round(HIGH - down * min(r or 0.0, most)) for r in past.used_ratio[start:end]]
            )
            start = end + 1
    marks = "".join(f"M{x} {HIGH}v-{HIGH * 9 // 100}" for x, n in zip(xs, past.preemptions, strict=True) if n)
    return join(*shapes, tag("path", d=marks, class_="preempted") if marks else None)


def _run(xs: list[int], ys: list[int]) -> list[Markup]:
    """Usage without a gap: the area below it and its line; a lone point is a dot, a line of no length."""
    if not xs:
        return []
    line = "L".join([f"{x} {y}" for x, y in zip(xs, ys, strict=True)])
    area = f"M{xs[0]} {HIGH}L{line}L{xs[-1]} {HIGH}Z"
    stroke = f"M{line}" if len(xs) > 1 else f"M{line}h0"
    return [Markup(f'<path d="{area}" class="area"></path><path d="{stroke}" class="used"></path>')]


def _ahead_shapes(outlook: list[tuple[float, float, float]], top: float) -> Markup:
    if not outlook:
        return Markup("")
    xs = [WIDE * ahead / AHEAD_SECONDS for ahead, _, _ in outlook]
    low = [f"{x:.0f} {10 * _y(point[1], top):.0f}" for x, point in zip(xs, outlook, strict=True)]
    high = [f"{x:.0f} {10 * _y(point[2], top):.0f}" for x, point in zip(xs, outlook, strict=True)]
    bad, mid = f"M{'L'.join(high)}", f"M{'L'.join(low)}"
    band = tag("path", d=f"{bad}L{'L'.join(reversed(low))}Z", class_="band")
    return join(band, tag("path", d=bad, class_="bad"), tag("path", d=mid, class_="mid"))


def _y(ratio: float, top: float) -> float:
    """How far below the top a ratio lies, in percent of the height."""
    return 100 * (1 - min(ratio, MOST, top) / top)


def _level(ratio: float, top: float, class_: str = "level") -> Markup:
    y = f"{_y(ratio, top):.1f}%"
    return tag("line", x1="0", x2="100%", y1=y, y2=y, class_=class_)


def _label(ratio: float, top: float) -> Markup:
    return tag("text", percent(ratio), x="4", y=f"{_y(ratio, top):.1f}%", dy="1.05em")


def _outlook_labels(outlook: list[tuple[float, float, float]], top: float) -> list[Markup]:
    """The numbers at the end of the projection, kept apart where they are close."""
    if not outlook:
        return []
    _, low, high = outlook[-1]
    y_low, y_high = _y(low, top), _y(high, top)
    labels = [tag("text", percent(low), x="99.3%", y=f"{y_low:.1f}%", dy="1.15em", class_="end")]
    if y_low - y_high > 1:
        labels.append(tag("text", percent(high), x="99.3%", y=f"{y_high:.1f}%", dy="-0.35em", class_="end"))
    return labels


def _ticks(window: int) -> list[Markup]:
    """Evenly spaced ages in whole minutes, or in seconds for a short window."""
    parts = 5 if window == 300 else 3
    ages = [window * part // parts for part in range(parts, 0, -1)]
    return [tag("span", f"−{age // 60} min" if window > 60 else f"−{age} s") for age in ages]


def _legend(engine: Engine, projected: bool) -> Markup:
    happened = sum(engine.history.preemptions)
    entries = [("used", "in use"), ("full", "full")]
    if projected:
        entries[1:1] = [("mid", "projected, median"), ("band", "up to a bad case (9 in 10)")]
    entries.append(("preempted", plural(happened, "preemption") if happened else "no preemptions"))
    return tag("figcaption", *(tag("span", tag("i", class_=f"key {kind}"), text) for kind, text in entries))
