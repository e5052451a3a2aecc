"""A run as a picture: ratios over time, and what happened when, as an SVG that needs no script and no font."""

from collections.abc import Mapping, Sequence
from html import escape

WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 960, 400, 50, 20, 76, 40
COLOURS = ("#2f6fde", "#c2410c", "#6b7280")
MARK_COLOURS = ("#b45309", "#b91c1c", "#111827", "#047857")
Points = Sequence[tuple[float, float]]


def timeline(lines: Mapping[str, Points], marks: Mapping[str, float], seconds: float) -> str:
    """`lines` name → (second, ratio 0..1) in order; `marks` name → second, each a vertical line with its name."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDE}" height="{HIGH}" fill="#fff"/>',
    ]
    for ratio in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = _y(ratio)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDE - RIGHT}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" fill="#4b5563">{ratio:.0%}</text>')
    step = next(one for one in (10, 15, 30, 60, 120, 300) if seconds / one <= 10)
    for second in range(0, int(seconds) + 1, step):
        text = f"{second} s" if second else "0"
        parts.append(
            f'<text x="{_x(second, seconds):.1f}" y="{HIGH - 16}" text-anchor="middle" fill="#4b5563">{text}</text>'
        )
    for colour, (name, points) in zip(COLOURS, lines.items(), strict=False):
        path = "L".join(f"{_x(second, seconds):.1f} {_y(min(1.0, ratio)):.1f}" for second, ratio in points)
        parts.append(
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"><title>{escape(name)}</title></path>'
        )
    place = float(LEFT)
    for colour, name in zip(COLOURS, lines, strict=False):
        parts.append(f'<path d="M{place:.0f} 18h22" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{place + 28:.0f}" y="22" fill="#111827">{escape(name)}</text>')
        place += 60 + 7.2 * len(name)
    for number, (name, when) in enumerate(sorted(marks.items(), key=lambda one: one[1])):
        colour, at = MARK_COLOURS[number % len(MARK_COLOURS)], _x(when, seconds)
        height = 40 + 14 * (number % 3)
        anchor, shift = ("end", -4) if at > WIDE / 2 else ("start", 4)
        parts.append(f'<path d="M{at:.1f} {height - 10}V{HIGH - BOTTOM}" stroke="{colour}" stroke-dasharray="5 3"/>')
        parts.append(
            f'<text x="{at + shift:.1f}" y="{height}" text-anchor="{anchor}" fill="{colour}">'
            f"{escape(name)}, {when:.0f} s</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def _x(second: float, seconds: float) -> float:
    return LEFT + (WIDE - LEFT - RIGHT) * second / seconds


def _y(ratio: float) -> float:
    return TOP + (HIGH - TOP - BOTTOM) * (1 - ratio)
