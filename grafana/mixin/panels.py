"""Panels as Grafana's classic JSON has them: a question in the title, a unit, and how to read it in the description."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

GREEN, YELLOW, ORANGE, RED, BLUE, PURPLE, GREY = "green", "yellow", "orange", "red", "blue", "purple", "#8e8e8e"

Steps = Sequence[tuple[float | None, str]]
CALM: Steps = ((None, GREEN),)


@dataclass(frozen=True, slots=True)
class Target:
    """One query; `legend` names its series. An `instant` query asks for the newest value alone."""

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False

    def render(self, ref: str) -> dict[str, Any]:
        """The query as Grafana stores it."""
        return {
            "refId": ref,
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "legendFormat": self.legend or "__auto",
            "instant": self.instant,
            "range": not self.instant,
            "format": "table" if self.table else "time_series",
        }


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `width` and `height` are grid units (24 across); `overrides` are the fields' own settings by name."""

    kind: str
    title: str
    description: str
    targets: tuple[Target, ...]
    unit: str = "short"
    width: int = 12
    height: int = 8
    steps: Steps = CALM
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    empty: str = ""
    colour: str = "palette-classic"
    custom: Mapping[str, Any] | None = None
    options: Mapping[str, Any] | None = None
    overrides: tuple[dict[str, Any], ...] = ()
    transformations: tuple[dict[str, Any], ...] = ()
    time_from: str = ""

    def render(self, number: int, x: int, y: int) -> dict[str, Any]:
        """The panel as Grafana stores it, at a place of the grid."""
        defaults: dict[str, Any] = {
            "unit": self.unit,
            "color": {"mode": self.colour},
            "thresholds": {"mode": "absolute", "steps": [{"value": value, "color": c} for value, c in self.steps]},
            "custom": dict(self.custom or {}),
            "mappings": [],
        }
        optional = {"min": self.low, "max": self.high, "decimals": self.decimals, "noValue": self.empty or None}
        defaults |= {name: value for name, value in optional.items() if value is not None}
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [target.render(chr(ord("A") + i)) for i, target in enumerate(self.targets)],
            "fieldConfig": {"defaults": defaults, "overrides": list(self.overrides)},
            "options": dict(self.options or {}),
            **({"transformations": list(self.transformations)} if self.transformations else {}),
            **({"timeFrom": self.time_from, "hideTimeOverride": True} if self.time_from else {}),
        }

    def at(self, width: int, height: int) -> "Panel":
        """The same panel in another size."""
        return replace(self, width=width, height=height)


def field(name: str, **properties: Any) -> dict[str, Any]:
    """An override for the series called `name`; `custom_x` stands for `custom.x`."""
    return _override("byName", name, properties)


def fields(pattern: str, **properties: Any) -> dict[str, Any]:
    """An override for all series whose name matches the pattern."""
    return _override("byRegexp", f"/{pattern}/", properties)


def _override(by: str, what: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    rendered = [
        {
            "id": name.replace("custom_", "custom."),
            "value": {"mode": "fixed", "fixedColor": value} if name == "color" else value,
        }
        for name, value in properties.items()
    ]
    return {"matcher": {"id": by, "options": what}, "properties": rendered}


def stat(title: str, description: str, targets: tuple[Target, ...], **more: Any) -> Panel:
    """One big value, coloured by its thresholds."""
    text_mode = more.pop("text_mode", "auto")
    graph = more.pop("graph", "area")
    size = {"text": {"valueSize": 40}} if more.get("height", 0) > 6 else {}
    options = {
        **size,
        "colorMode": "value",
        "graphMode": graph,
        "justifyMode": "center",
        "orientation": "auto",
        "textMode": text_mode,
        "wideLayout": True,
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    settings: dict[str, Any] = {"width": 4, "height": 4, "colour": "thresholds", **more}
    return Panel("stat", title, description, targets, **settings, options=options)


def timeseries(title: str, description: str, targets: tuple[Target, ...], **more: Any) -> Panel:
    """Lines over time. `fill` in percent; `stack` puts series on top of each other; `limit` draws the thresholds.

    The axis reaches at least to `soft`.
    """
    stack, limit, bars = more.pop("stack", False), more.pop("limit", False), more.pop("bars", False)
    soft = more.pop("soft", None)
    custom = {
        "drawStyle": "bars" if bars else "line",
        "lineInterpolation": "linear",
        "lineWidth": 0 if stack else 2,
        "fillOpacity": more.pop("fill", 75 if stack else 60 if bars else 8),
        "gradientMode": "none",
        "showPoints": "never",
        "spanNulls": False,
        "axisLabel": "",
        "axisPlacement": "auto",
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if limit else "off"},
        **({} if soft is None else {"axisSoftMax": soft}),
    }
    legend = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
    options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    return Panel("timeseries", title, description, targets, **more, custom=custom, options=options)


def bars(title: str, description: str, targets: tuple[Target, ...], **more: Any) -> Panel:
    """One horizontal bar for each series, newest value."""
    options = {
        "displayMode": "gradient",
        "orientation": "horizontal",
        "valueMode": "text",
        "showUnfilled": True,
        "minVizWidth": 8,
        "minVizHeight": 16,
        "namePlacement": "auto",
        "sizing": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    return Panel("bargauge", title, description, targets, **{"colour": "thresholds", **more}, options=options)


def table(title: str, description: str, targets: tuple[Target, ...], **more: Any) -> Panel:
    """One row for each set of labels; the columns come from the queries."""
    custom = {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": False}
    options = {"showHeader": True, "cellHeight": "sm", "sortBy": more.pop("sort", [])}
    return Panel(
        "table",
        title,
        description,
        targets,
        **{"width": 24, "colour": "thresholds", **more},
        custom=custom,
        options=options,
    )
