"""Shares of a whole as horizontal bars."""

from collections.abc import Iterator, Sequence

from exporter.web.markup import Markup, tag
from exporter.web.status import Segment, SegmentKind
from exporter.web.words import percent, size

LABELS: dict[SegmentKind, str] = {
    "weights": "weights",
    "kv_used": "KV used",
    "kv_free": "KV free",
    "kv_pool": "KV pool",
    "other": "other (activations, graphs)",
    "server": "the server",
    "neighbours": "neighbours",
    "unattributed": "unattributed",
    "reserved": "reserved by the driver",
    "free": "free",
}
WIDE = 1000.0
THIN = 3.0
"""The least width at which a part can be seen."""


def stacked(segments: Sequence[Segment], what: str) -> Markup:
    """A whole cut into its parts, side by side."""
    total = sum(part.bytes for part in segments) or 1
    said = ", ".join(f"{LABELS[part.kind]} {size(part.bytes)}" for part in segments)
    rects = []
    for part, x, width in _laid_out(segments, total):
        title = f"{LABELS[part.kind]}: {size(part.bytes)} ({percent(part.bytes / total)}), {part.evidence}"
        rects.append(
            tag("rect", tag("title", title), x=round(x, 1), y=0, width=round(width, 1), height=1, class_=part.kind)
        )
    return _drawing("stack", f"{what}: {said}", *rects)


def _laid_out(segments: Sequence[Segment], total: int) -> Iterator[tuple[Segment, float, float]]:
    """Each part with its place; a part too thin to be seen takes a little from all others."""
    widths = [max(THIN, WIDE * part.bytes / total) if part.bytes else 0.0 for part in segments]
    scale = WIDE / sum(widths)
    x = 0.0
    for part, width in zip(segments, widths, strict=True):
        yield part, x, width * scale
        x += width * scale


def legend(segments: Sequence[Segment], sizes: bool = True) -> Markup:
    """The parts by name, with their sizes where asked."""
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag("i", class_=f"key {part.kind}"),
                f"{LABELS[part.kind]} ",
                tag("b", size(part.bytes), " est." if part.evidence == "estimated" else None) if sizes else None,
            )
            for part in segments
        ),
        class_="legend",
    )


def meter(ratio: float | None, what: str, kind: str = "") -> Markup:
    """A share as a filled bar; empty and said to be unknown when it is."""
    width = round(WIDE * min(1.0, max(0.0, ratio or 0.0)), 1)
    label = f"{what}: {percent(ratio) if ratio is not None else 'not known'}"
    fill = tag("rect", x=0, y=0, width=width, height=1, class_="fill")
    return _drawing(f"meter {kind}".strip(), label, fill)


def _drawing(class_: str, label: str, *shapes: Markup) -> Markup:
    """Shapes one unit high and a thousand wide, stretched to the place they get."""
    box = {"viewBox": "0 0 1000 1", "preserveAspectRatio": "none"}
    return tag("svg", *shapes, class_=class_, role="img", aria_label=label, **box)
