"""Rows of panels on a grid, and what every dashboard shares: variables, links, the alerts as annotations."""

from dataclasses import dataclass
from typing import Any

from grafana.mixin.panels import DATASOURCE, Panel
from grafana.mixin.thresholds import ENGINE_DASHBOARD, FLEET_DASHBOARD, QUALITY_DASHBOARD, REPOSITORY

VLLM_DASHBOARDS = "https://docs.vllm.ai/en/stable/examples/observability/dashboards/"
TITLES = {
    FLEET_DASHBOARD: "vLLM Headroom / Fleet",
    ENGINE_DASHBOARD: "vLLM Headroom / Engine",
    QUALITY_DASHBOARD: "vLLM Headroom / Forecast quality",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A question, and the panels that answer it, from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard. `chain` are the variables it offers, of namespace, model and pod, each narrowed by those before."""

    uid: str
    description: str
    rows: tuple[Row, ...]
    chain: tuple[str, ...] = ("namespace", "model", "pod")
    span: str = "now-30m"

    def render(self) -> dict[str, Any]:
        """The dashboard as classic JSON."""
        return {
            "uid": self.uid,
            "title": TITLES[self.uid],
            "description": self.description,
            "tags": ["vllm", "vllm-headroom"],
            "schemaVersion": 41,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": {"from": self.span, "to": "now"},
            "timezone": "browser",
            "timepicker": {},
            "fiscalYearStartMonth": 0,
            "weekStart": "",
            "liveNow": False,
            "links": _links(self.uid),
            "annotations": {"list": [_alerts(), _preemptions()]},
            "templating": {"list": [_datasource(), *(_variable(name) for name in self.chain)]},
            "panels": _place(self.rows),
        }


def _place(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    """Panels side by side until a line of 24 units is full, then the next line."""
    placed: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        grid = {"x": 0, "y": y, "w": 24, "h": 1}
        placed.append(
            {
                "id": len(placed) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": grid,
                "panels": [],
            }
        )
        x, y, tallest = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > 24:
                x, y, tallest = 0, y + tallest, 0
            placed.append(panel.render(len(placed) + 1, x, y))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    return placed


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
    }


_QUERIES = {
    "namespace": "label_values(vllm_headroom_state, namespace)",
    "model": 'label_values(vllm_headroom_state{namespace=~"$namespace"}, model_name)',
    "pod": 'label_values(vllm_headroom_state{namespace=~"$namespace", model_name=~"$model"}, pod)',
}


def _variable(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": _QUERIES[name], "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "hide": 0,
    }


def _alerts() -> dict[str, Any]:
    alert = 'alertname=~"VLLMHeadroom.+", alertstate="firing", namespace=~"$namespace", pod=~"$pod"'
    return _event(
        "Alerts", f"ALERTS{{{alert}}}", "red", "{{alertname}}", "{{severity}}: {{pod}} {{model_name}} {{engine}}"
    )


def _preemptions() -> dict[str, Any]:
    where = 'namespace=~"$namespace", model_name=~"$model", pod=~"$pod"'
    expr = f"vllm_headroom_preemptions_per_second{{{where}}} > 0"
    return _event("Preemptions", expr, "orange", "Preempting", "{{pod}} {{engine}}")


def _event(name: str, expr: str, colour: str, title: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "titleFormat": title,
        "textFormat": text,
        "step": "15s",
    }


def _links(uid: str) -> list[dict[str, Any]]:
    own = [
        {
            "title": title,
            "type": "link",
            "url": f"/d/{other}",
            "keepTime": True,
            "includeVars": True,
            "targetBlank": False,
        }
        for other, title in TITLES.items()
        if other != uid
    ]
    elsewhere = (("vLLM's own dashboards", VLLM_DASHBOARDS), ("Runbooks", f"{REPOSITORY}/tree/main/docs/runbooks"))
    outer = [
        {
            "title": title,
            "type": "link",
            "url": url,
            "keepTime": False,
            "includeVars": False,
            "targetBlank": True,
            "icon": "external link",
        }
        for title, url in elsewhere
    ]
    return [*own, *outer]
