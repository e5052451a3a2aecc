"""The dashboards obey the conventions, and every panel has something to show from a live exporter."""

import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from exporter.forecast.alarm import AlarmRule
from grafana.mixin.thresholds import Thresholds
from tests.grafana.test_rules import FAMILIES, NAMES, RECORDED, metrics_of

ROOT = Path(__file__).parents[2]
HOME = ROOT / "grafana" / "dashboards"
DASHBOARDS = {file.stem: json.loads(file.read_text()) for file in sorted(HOME.glob("*.json"))}
ROW_QUESTIONS = [
    "Is it about to run out?",
    "Why?",
    "What is the load?",
    "The GPU",
    "The host",
    "The exporter itself",
]
OWN_PROCESS = {"process_resident_memory_bytes"}
BUILT_IN = {"__rate_interval": "1m", "__range": "30m", "__interval": "15s"}
VARIABLES = {"namespace": ".+", "model": ".+", "pod": ".+", "datasource": "prometheus"}


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


ALL = [(uid, panel) for uid, dashboard in DASHBOARDS.items() for panel in panels(dashboard)]
each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))
each_panel = pytest.mark.parametrize("panel", [p for _, p in ALL], ids=[f"{uid}-{p['title']}" for uid, p in ALL])


def filled(expr: str) -> str:
    """The query with every variable replaced, as Grafana sends it when All is chosen."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: (BUILT_IN | VARIABLES)[match[1]], expr)


@each_dashboard
def test_a_dashboard_keeps_the_conventions(dashboard: dict[str, Any]) -> None:
    """Classic JSON of schema 41, a stable uid, not editable, alerts as annotations, vLLM's own dashboards linked."""
    assert dashboard["schemaVersion"] == 41
    assert dashboard["editable"] is False
    assert re.fullmatch(r"vllm-headroom-[a-z]+", dashboard["uid"])
    assert "id" not in dashboard
    alerts, preemptions = dashboard["annotations"]["list"]
    assert metrics_of(filled(alerts["expr"])) == {"ALERTS"}
    assert metrics_of(filled(preemptions["expr"])) == {"vllm_headroom_preemptions_per_second"}
    links = [link["url"] for link in dashboard["links"]]
    assert {f"/d/{uid}" for uid in DASHBOARDS if uid != dashboard["uid"]} <= set(links)
    assert any("docs.vllm.ai" in url for url in links)


@each_dashboard
def test_variables_are_one_data_source_and_a_chain(dashboard: dict[str, Any]) -> None:
    """One `datasource`; namespace, model and pod each narrowed by those before, refreshed with the time range."""
    source, *chain = dashboard["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert [one["name"] for one in chain] == ["namespace", "model", "pod"]
    for i, one in enumerate(chain):
        assert (one["allValue"], one["refresh"], one["includeAll"], one["multi"]) == (".+", 2, True, True)
        for before in chain[:i]:
            assert f'=~"${before["name"]}"' in one["query"]["query"]


def sources(node: Any) -> Iterator[Any]:
    """Every data source that a dashboard names."""
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from sources(child)
    if isinstance(node, dict) and "datasource" in node:
        yield node["datasource"]


def is_portable(dashboard: dict[str, Any]) -> bool:
    """Whether every data source is the variable, and no variable has a stored value."""
    stored = any("current" in variable for variable in dashboard["templating"]["list"])
    return not stored and all(one == {"type": "prometheus", "uid": "${datasource}"} for one in sources(dashboard))


@each_dashboard
def test_no_data_source_or_choice_of_the_author_is_baked_in(dashboard: dict[str, Any]) -> None:
    """The JSON works in any Grafana; one with somebody's own uid in a single panel would not pass."""
    assert is_portable(dashboard)
    text = json.dumps(dashboard).replace("${datasource}", "edx8memhpd9tsa", 1)
    assert not is_portable(json.loads(text))


@each_dashboard
def test_a_uid_can_stand_in_the_variables_place(dashboard: dict[str, Any]) -> None:
    """Tools that substitute the data source put its uid everywhere by one replacement, and nothing else changes."""
    replaced = json.loads(json.dumps(dashboard).replace("${datasource}", "prom"))
    assert {one["uid"] for one in sources(replaced)} == {"prom"}
    assert len(list(sources(replaced))) == len(list(sources(dashboard)))


def test_the_engines_rows_are_the_questions_in_order() -> None:
    """The story reads from the verdict down to the exporter."""
    engine = DASHBOARDS["vllm-headroom-engine"]
    assert [panel["title"] for panel in engine["panels"] if panel["type"] == "row"] == ROW_QUESTIONS


@each_dashboard
def test_panels_fill_the_grid_without_overlap(dashboard: dict[str, Any]) -> None:
    """Each cell of the grid belongs to one panel at most, none is cut at the right, and every line is full."""
    cells: dict[tuple[int, int], int] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert cells.setdefault((x, y), panel["id"]) == panel["id"]
    lines = {y for _, y in cells}
    assert all((x, y) in cells for y in lines for x in range(24))


@each_panel
def test_a_panel_explains_itself(panel: dict[str, Any]) -> None:
    """Title, description in a sentence, unit and thresholds are there, and what an empty panel says is said."""
    assert panel["title"]
    assert panel["description"].endswith(".")
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"]
    assert defaults["thresholds"]["steps"][0]["value"] is None


@each_panel
def test_a_panel_asks_for_what_exists(panel: dict[str, Any]) -> None:
    """Each query parses and names only families of the table, recorded series, alerts and `up`."""
    assert panel["targets"]
    for target in panel["targets"]:
        query = filled(target["expr"])
        assert metrics_of(query) <= FAMILIES | RECORDED | OWN_PROCESS | {"up", "ALERTS"}, query


@each_panel
def test_ranges_follow_the_scrape_interval(panel: dict[str, Any]) -> None:
    """Rates use `$__rate_interval`; counts over the time shown use `$__range`; an hour is said in the title."""
    for target in panel["targets"]:
        for window in re.findall(r"\b(?:rate|increase)\([^)]*\[([^\]]+)\]", target["expr"]):
            assert window in ("$__rate_interval", "$__range", "1h"), target["expr"]


def test_red_lines_are_where_the_alerts_are() -> None:
    """A panel of a value that an alert compares shows the alert's own number as a threshold."""
    t = Thresholds()
    pairs = {
        "Preemptions": t.spike_per_second,
        "Preemptions per finished request": t.spike_per_request,
        "Offered load over capacity": t.offered_load_ratio,
        "KV runs out within 60 s": str(AlarmRule().on),
        "Probability that KV runs out, by horizon": str(AlarmRule().on),
        "KV runs out in": t.kv_near_seconds,
        "Age of what it shows": t.stale_seconds,
        "Calibration error": t.forecast_calibration_error,
        "Calibration error over time": t.forecast_calibration_error,
    }
    shown = {panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"] for _, panel in ALL}
    for title, number in pairs.items():
        assert float(number) in [step["value"] for step in shown[title]], title


@pytest.fixture(scope="module")
def answers(demo_prometheus: str) -> dict[str, bool]:
    """Query → whether a real Prometheus that scraped the demo for two minutes has data for it."""
    queries = {filled(target["expr"]): panel for _, panel in ALL for target in panel["targets"]}
    now = time.time()
    return {
        query: _has_data(demo_prometheus, query, now + 60 * bool(panel.get("timeFrom")))
        for query, panel in queries.items()
    }


def _has_data(url: str, query: str, at: float) -> bool:
    parameters = urllib.parse.urlencode({"query": query, "time": at})
    with urllib.request.urlopen(f"{url}/api/v1/query?{parameters}", timeout=30) as response:
        return bool(json.load(response)["data"]["result"])


@each_panel
def test_a_panel_has_data_after_two_minutes_of_overload(panel: dict[str, Any], answers: dict[str, bool]) -> None:
    """Executed against a real Prometheus each query returns data; what may be silent says in words why."""
    silent = [t["expr"] for t in panel["targets"] if not answers[filled(t["expr"])]]
    if silent:
        assert panel["fieldConfig"]["defaults"].get("noValue"), silent


def test_what_is_silent_has_a_reason(answers: dict[str, bool]) -> None:
    """Two minutes of the demo leave only this unknown: what takes longer to know, and what is not the case."""
    takes_longer = {"forecasts_total", "forecast_calibration_error", "device_growth_bytes_per_second"}
    takes_longer |= {"kv_offered_load_ratio", "lever_gain_ratio", "recomputed_tokens_per_second"}
    not_the_case = {"time_to_exhaustion_seconds", "preemptions_per_second", "oom_predicted", "kv_requests", "state"}
    not_there = {name.removeprefix("vllm_headroom_") for name in FAMILIES if "_host_" in name}
    allowed = {f"vllm_headroom_{name}" for name in takes_longer | not_the_case | not_there}
    silent = {name for query, some in answers.items() if not some for name in metrics_of(query)}
    assert {name.removeprefix("model:").split(":")[0] for name in silent} <= allowed
    assert sum(answers.values()) >= 0.75 * len(answers)


def test_every_alert_that_can_page_is_explained_by_a_dashboard() -> None:
    """The annotation shows all our alerts, whatever their name."""
    pattern = re.compile('alertname=~"([^"]+)"')
    for dashboard in DASHBOARDS.values():
        found = pattern.search(dashboard["annotations"]["list"][0]["expr"])
        assert found
        assert all(re.fullmatch(found[1], name) for name in NAMES)
