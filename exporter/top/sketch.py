"""The KV pool drawn with characters: the past, now, and the projection, as rows of styled pieces."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from exporter.web.status import Engine, Segment
from exporter.web.words import about, percent

Piece = tuple[str, str]
"""Characters and the name of their style: used, ahead, bad, full, mark, quiet, or a part of a GPU."""
Row = list[Piece]

EIGHTHS = " ▁▂▃▄▅▆▇█"
AHEAD_SECONDS = 60.0
AHEAD_SHARE = 0.22
SCALE_WIDTH = 6


@dataclass(frozen=True, slots=True)
class Column:
    """One column: how high it is filled, and up to where a bad case would fill it; ratios of the pool."""

    height: float | None
    bad: float | None = None
    style: str = "used"


def pool_rows(engine: Engine, width: int, height: int) -> list[Row]:
    """The drawing in `height` rows and an axis, `width` characters wide."""
    room = max(12, width - SCALE_WIDTH)
    ahead = max(4, round(room * AHEAD_SHARE))
    columns = [*_past(engine, room - ahead - 1), Column(None, None, "now"), *_ahead(engine, ahead)]
    highest = max((c.bad or c.height or 0.0 for c in columns), default=0.0)
    # A full pool ends exactly where a row does, so that it never seems to stand above its own line.
    top = height / max(1, int(height / min(2.0, max(1.0, highest))))
    rows = [_row(columns, level, height, top) for level in range(height - 1, -1, -1)]
    return [*rows, *_axis(engine, room - ahead - 1, ahead)]


def _past(engine: Engine, width: int) -> list[Column]:
    past = engine.history
    buckets: list[float | None] = [None] * width
    step = past.window_seconds / width
    for ago, ratio in zip(past.seconds_ago, past.used_ratio, strict=True):
        place = width - 1 - int(ago / step)
        if ratio is not None and 0 <= place < width:
            buckets[place] = max(ratio, buckets[place] or 0.0)
    return [Column(ratio) for ratio in _filled(buckets, past.seconds_ago, step)]


def _filled(buckets: list[float | None], ages: Sequence[float], step: float) -> list[float | None]:
    """Columns between two points that are further apart than a column take the value before them."""
    spacing = max((older - newer for older, newer in pairwise(ages)), default=0.0) if len(ages) < 400 else 0.0
    reach = max(0, round(min(spacing, 3 * step) / step))
    filled, since = list(buckets), reach
    for place in range(1, len(filled)):
        since = 0 if buckets[place] is not None else since + 1
        if filled[place] is None and since <= reach:
            filled[place] = filled[place - 1]
    return filled


def _ahead(engine: Engine, width: int) -> list[Column]:
    """The projection: median and highest quantile, interpolated between the horizons."""
    now = engine.pool.used_ratio
    by_horizon: dict[float, list[float]] = {}
    for demand in engine.forecast.demand:
        if demand.horizon_seconds <= AHEAD_SECONDS:
            by_horizon.setdefault(demand.horizon_seconds, []).append(demand.ratio)
    if now is None or not by_horizon:
        return [Column(None, None, "ahead")] * width
    known = [(0.0, now, now), *((h, min(r), max(r)) for h, r in sorted(by_horizon.items()))]
    moments = [AHEAD_SECONDS * (place + 1) / width for place in range(width)]
    return [Column(_between(known, moment, 1), _between(known, moment, 2), "ahead") for moment in moments]


def _between(known: Sequence[tuple[float, float, float]], moment: float, which: int) -> float:
    for before, after in pairwise(known):
        if moment <= after[0]:
            share = (moment - before[0]) / (after[0] - before[0])
            return before[which] + share * (after[which] - before[which])
    return known[-1][which]


def _row(columns: Sequence[Column], level: int, height: int, top: float) -> Row:
    full = round(height / top) - 1
    label = percent(1.0) if level == full else percent(0.5) if level == round(height / top / 2) - 1 else ""
    return [(f"{label:>{SCALE_WIDTH - 1}} ", "quiet"), *(_cell(c, level, height, top, level == full) for c in columns)]


def _cell(column: Column, level: int, height: int, top: float, at_full: bool) -> Piece:
    if column.style == "now":
        return "│", "quiet"
    if column.height is not None:
        eighths = round(8 * (min(column.height, top) / top * height - level))
        if eighths > 0:
            return EIGHTHS[min(8, eighths)], column.style
        if column.bad is not None and min(column.bad, top) / top * height - level > 0.5:
            return "░", "bad"
    return ("╌", "full") if at_full else (" ", "")


def _axis(engine: Engine, past: int, ahead: int) -> list[Row]:
    window = engine.history.window_seconds
    marks = [" "] * past
    for ago, happened in zip(engine.history.seconds_ago, engine.history.preemptions, strict=True):
        place = past - 1 - int(ago / window * past)
        if happened and 0 <= place < past:
            marks[place] = "▲"
    left = f"−{about(window)}"
    scale = f"{left:<{max(len(left), past - 2)}}now{f'+{AHEAD_SECONDS:.0f} s':>{max(6, ahead - 1)}}"
    rows: list[Row] = [[(" " * SCALE_WIDTH, ""), (scale, "quiet")]]
    if "▲" in marks:
        rows.insert(0, [(" " * SCALE_WIDTH, ""), ("".join(marks), "mark"), (" preempted", "quiet")])
    return rows


def bar(ratio: float | None, width: int, style: str) -> Row:
    """A share as a bar; an unknown one is empty."""
    eighths = round(8 * width * min(1.0, max(0.0, ratio or 0.0)))
    whole, rest = divmod(eighths, 8)
    text = "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
    return [(text, style), ("·" * (width - len(text)), "quiet")]


def stack(segments: Sequence[Segment], width: int) -> Row:
    """A whole cut into its parts, each at least one character wide where it is not empty."""
    parts = [part for part in segments if part.bytes > 0]
    total = sum(part.bytes for part in parts)
    shares = [max(1, round(width * part.bytes / total)) for part in parts]
    while sum(shares) > width and max(shares) > 1:
        shares[shares.index(max(shares))] -= 1
    while shares and sum(shares) < width:
        shares[shares.index(max(shares))] += 1
    marks = {"kv_used": "█", "kv_free": "▒", "kv_pool": "▓", "free": "·", "weights": "█", "neighbours": "▚"}
    return [(marks.get(p.kind, "▓") * n, p.kind) for p, n in zip(parts, shares, strict=True)]
