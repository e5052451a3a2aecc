"""The alert routing: real tools accept it, each alert goes where it should, and both forms of it say the same."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana.mixin.pagerduty import KEY_FILE
from tests.grafana.pagerduty import as_operator
from tests.grafana.test_rules import NAMES
from tests.support.tools import tool

HOME = Path(__file__).parents[2] / "grafana" / "alertmanager"
RULES = str(HOME.parent / "rules" / "*.yaml")
CONFIG = HOME / "alertmanager.yml"
RESOURCE = HOME / "alertmanagerconfig.yaml"
AMLINT = str(Path(sys.executable).with_name("amlint"))


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def load(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def test_alertmanager_accepts_the_configuration() -> None:
    """`amtool check-config`, which uses Alertmanager's own loader, finds no fault."""
    assert "SUCCESS" in run(tool("amtool", "prometheus-alertmanager"), "check-config", str(CONFIG))


@pytest.mark.parametrize("file", [CONFIG, RESOURCE], ids=lambda file: file.name)
def test_the_linter_finds_nothing_against_the_rules(file: Path) -> None:
    """amlint, strict and with the rules at hand: no route or inhibition is dead, no template wrong."""
    run(AMLINT, "check", str(file), "--strict", "--rules", RULES)


def test_each_kind_of_alert_goes_where_the_cases_say() -> None:
    """The cases pass, inhibitions included, and reach every route."""
    run(AMLINT, "test", str(CONFIG), str(HOME / "cases.yml"), "--coverage", "--fail-under", "100")


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_reaches_pagerduty_at_any_severity(name: str) -> None:
    """Alertmanager's own router sends each of our alerts to the PagerDuty receiver."""
    for severity in ("warning", "critical"):
        out = run(
            tool("amtool", "prometheus-alertmanager"),
            "config",
            "routes",
            "test",
            f"--config.file={CONFIG}",
            f"alertname={name}",
            f"severity={severity}",
        )
        assert out.strip() == "vllm-headroom-pagerduty"


def test_no_route_tells_severities_apart() -> None:
    """No matcher and no grouping names severity or alert, so a warning that turns critical is one incident."""
    (ours,) = load(CONFIG)["route"]["routes"]
    for route in (ours, *ours["routes"]):
        assert not any(m.startswith("severity") for m in route["matchers"])
        assert not {"severity", "alertname"} & set(route["group_by"])


def test_the_key_is_in_a_file_and_never_in_the_configuration() -> None:
    """The routing key comes from a file, or from a Secret under the operator."""
    (receiver,) = load(CONFIG)["receivers"][1]["pagerduty_configs"]
    assert receiver["routing_key_file"] == KEY_FILE
    assert "routing_key" not in receiver
    (resource,) = load(RESOURCE)["spec"]["receivers"][0]["pagerdutyConfigs"]
    assert resource["routingKey"] == {"name": "vllm-headroom-pagerduty", "key": "routing-key"}


def test_the_operators_resource_says_the_same() -> None:
    """What the operator makes of the resource is the plain configuration, bound to one namespace."""
    plain, made = load(CONFIG), as_operator(load(RESOURCE), "llm", KEY_FILE)
    assert made["receivers"][1]["pagerduty_configs"] == plain["receivers"][1]["pagerduty_configs"]
    assert [rule["equal"] for rule in made["inhibit_rules"]] == [rule["equal"] for rule in plain["inhibit_rules"]]
    (ours,), (theirs,) = plain["route"]["routes"], made["route"]["routes"]
    assert theirs["matchers"] == ['namespace="llm"', *ours["matchers"]]
    for name in ("group_by", "group_wait", "group_interval", "repeat_interval"):
        assert theirs[name] == ours[name]
