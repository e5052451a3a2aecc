"""The PrometheusRule holds the rules of grafana/, and they pass the same tests."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.tools import ROOT, VERSIONS, Helm, of_kind, run
from tests.support.tools import tool as program

RULES = ROOT / "grafana" / "rules"
ON = {"rules": {"create": "always"}}


def _groups(major: str = "4", **rules: Any) -> list[dict[str, Any]]:
    rule = of_kind(Helm(major).template(values={"rules": ON["rules"] | rules}), "PrometheusRule")
    groups: list[dict[str, Any]] = rule["spec"]["groups"]
    return groups


def _alerts(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@pytest.mark.parametrize("major", VERSIONS)
def test_by_default_the_rules_are_the_committed_ones(major: str) -> None:
    """With the default thresholds the chart's rules equal grafana/rules, value by value."""
    committed = [group for file in sorted(RULES.glob("*.yaml")) for group in yaml.safe_load(file.read_text())["groups"]]
    assert sorted(_groups(major), key=lambda group: group["name"]) == sorted(committed, key=lambda group: group["name"])


def test_the_extracted_rules_pass_the_rules_tests(tmp_path: Path) -> None:
    """Promtool takes the rules out of the PrometheusRule, and the unchanged tests of grafana/ pass on them.

    Two of the test files are run; by the equality above the others say the same here as on grafana/rules.
    """
    groups = {group["name"]: group for group in _groups()}
    for file in sorted(RULES.glob("*.yaml")):
        names = [group["name"] for group in yaml.safe_load(file.read_text())["groups"]]
        (tmp_path / file.name).write_text(yaml.safe_dump({"groups": [groups[name] for name in names]}))
    checked = run(
        [
            program("promtool", "prometheus"),
            "check",
            "rules",
            "--lint=all",
            "--lint-fatal",
            *sorted(tmp_path.glob("*.yaml")),
        ]
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tests = shutil.copytree(RULES / "tests", tmp_path / "tests")
    ran = run([program("promtool", "prometheus"), "test", "rules", tests / "kv.yaml", tests / "recording.yaml"])
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_threshold_reaches_the_expressions(tmp_path: Path) -> None:
    """A threshold of one's own stands in the expression, which is still PromQL, and no placeholder is left."""
    groups = _groups(thresholds={"kvNearSeconds": 47})
    expressions = [rule["expr"] for rule in _alerts(groups)]
    assert any("< 47" in expression for expression in expressions)
    assert not any("@" in expression for expression in expressions)
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": groups}))
    assert run([program("promtool", "prometheus"), "check", "rules", file]).returncode == 0


def test_alerts_can_be_left_out_labelled_and_pointed_at_other_runbooks() -> None:
    """`disabled`, `alertLabels` and `runbookBaseUrl` do what they say, and only to alerts."""
    gone = "VLLMHeadroomCalibrationOff"
    groups = _groups(disabled=[gone], alertLabels={"team": "inference"}, runbookBaseUrl="https://wiki.example.com/rb/")
    before = _alerts(_groups())
    after = _alerts(groups)
    assert {rule["alert"] for rule in before} - {rule["alert"] for rule in after} == {gone}
    for rule in after:
        assert rule["labels"]["team"] == "inference"
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["runbook_url"] == f"https://wiki.example.com/rb/{rule['alert']}.md"
    assert all("team" not in rule.get("labels", {}) for group in groups for rule in group["rules"] if "record" in rule)
