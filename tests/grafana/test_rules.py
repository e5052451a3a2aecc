"""The rules are what the builder makes, ask only for series that exist, and fire when they should and only then."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from exporter.metrics import TABLE
from grafana import build
from grafana.mixin.thresholds import REPOSITORY, Thresholds
from tests.support.tools import tool

ROOT = Path(__file__).parents[2]
RULES = ROOT / "grafana" / "rules"
FILES = sorted(RULES.glob("*.yaml"))
TESTS = sorted((RULES / "tests").glob("*.yaml"))
FAMILIES = {family.name for family in TABLE}


def rules() -> Iterator[dict[str, Any]]:
    for file in FILES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            yield from group["rules"]


ALERTS = [rule for rule in rules() if "alert" in rule]
RECORDED = {rule["record"] for rule in rules() if "record" in rule}
NAMES = sorted({rule["alert"] for rule in ALERTS})


def selectors(node: Any) -> Iterator[Any]:
    """Every vector selector below a node of a parsed query."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "args", "param"):
        child = getattr(node, name, None)
        for item in child if isinstance(child, list) else [child]:
            if item is not None and item is not node:
                yield from selectors(item)


def metrics_of(expr: str) -> set[str]:
    return {str(selector.name) for selector in selectors(promql_parser.parse(expr))}


def test_the_committed_files_are_what_the_builder_makes() -> None:
    """Building again changes nothing: no rule is edited by hand, none is forgotten."""
    stale = [name for name, text in build.everything().items() if (ROOT / "grafana" / name).read_text() != text]
    assert stale == []


def test_prometheus_accepts_every_rule_without_a_remark() -> None:
    """`promtool check rules` finds nothing to say, duplicates included."""
    command = [tool("promtool", "prometheus"), "check", "rules", "--lint=all", "--lint-fatal", *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_alerts_fire_and_resolve_as_written_down(file: Path) -> None:
    """Each scripted series leads to exactly the alerts, with all annotations, that the file expects."""
    done = subprocess.run(
        [tool("promtool", "prometheus"), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_is_walked_from_quiet_to_firing_to_quiet(name: str) -> None:
    """Some test expects silence, then the alert with each of its severities, then silence again."""
    walked, severities = False, set()
    for file in TESTS:
        for test in yaml.safe_load(file.read_text())["tests"]:
            cases = [case for case in test.get("alert_rule_test", []) if case["alertname"] == name]
            fired = [bool(case["exp_alerts"]) for case in cases]
            severities |= {alert["exp_labels"]["severity"] for case in cases for alert in case["exp_alerts"]}
            walked |= bool(fired) and not fired[0] and not fired[-1] and any(fired)
    assert walked
    assert severities == {rule["labels"]["severity"] for rule in ALERTS if rule["alert"] == name}


def test_rules_ask_only_for_series_that_exist() -> None:
    """Alerts depend on our own families, on what is recorded from them, and on `up`; nothing else has to be scraped."""
    for rule in rules():
        assert metrics_of(rule["expr"]) <= FAMILIES | RECORDED | {"up"}, rule


def test_evidence_asks_only_for_series_that_exist() -> None:
    """The look-ups in the annotations name families of the table."""
    for rule in ALERTS:
        text = " ".join(rule["annotations"].values())
        assert set(re.findall(r"`(vllm_headroom_\w+)\{", text)) <= FAMILIES


def test_ratios_are_never_averaged_or_summed_over_engines() -> None:
    """An average hides the full engine and a sum exceeds one: ratios are joined by max or min alone."""
    for rule in rules():
        for operation, by in re.findall(r"\b(avg|sum) (?:by|without) \([^)]*\) \(([^()]*)", rule["expr"]):
            assert not re.search("ratio|probability", by), (operation, by)


def test_no_rule_divides_by_what_can_be_zero() -> None:
    """A limit of zero never makes an alert fire for ever: shares of a limit are products, not quotients."""
    for rule in rules():
        assert "/" not in rule["expr"] or "increase(" in rule["expr"], rule["expr"]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_an_alert_says_what_it_knows_what_it_costs_and_what_to_do(rule: dict[str, Any]) -> None:
    """Product prefix, severity as the only label, five annotations, a first action with its cost, and a runbook."""
    assert re.fullmatch(r"VLLMHeadroom([A-Z]+[a-z]*)+", rule["alert"])
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    annotations = rule["annotations"]
    assert list(annotations) == ["summary", "description", "impact", "action", "runbook_url"]
    assert "First: " in annotations["action"]
    assert re.search(r"cost|plan|Remove|report", annotations["action"])
    assert "keep_firing_for" in rule
    assert annotations["runbook_url"] == f"{REPOSITORY}/blob/main/docs/runbooks/{rule['alert']}.md"


def test_advice_never_lowers_the_pool_against_kv_pressure() -> None:
    """Against preemption no text proposes a lower --gpu-memory-utilization, which would shrink the pool."""
    for rule in ALERTS:
        if re.search("KV|Preemption|Offered", rule["alert"]):
            assert "--gpu-memory-utilization 0" not in rule["annotations"]["action"]
            assert "lower --gpu-memory-utilization" not in rule["annotations"]["action"]


def test_every_threshold_is_used_and_can_be_filled_in() -> None:
    """Filling the template's placeholders with the defaults gives the committed rules, to the letter."""
    reference = Thresholds.reference()
    used: set[str] = set()
    for file in FILES:
        text = (ROOT / "grafana" / "template" / file.name).read_text()
        used |= set(re.findall(r"@(\w+)@", text))
        for name, entry in reference.items():
            text = text.replace(f"@{name}@", entry["default"])
        assert text == file.read_text()
    assert used == set(reference)
