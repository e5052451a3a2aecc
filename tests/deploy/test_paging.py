"""The AlertmanagerConfig is grafana's, with the Secret, the links and the severities of one's own."""

from typing import Any

import yaml

from tests.deploy.tools import ROOT, Helm, of_kind

COMMITTED = yaml.safe_load((ROOT / "grafana" / "alertmanager" / "alertmanagerconfig.yaml").read_text())["spec"]
URL = "https://events.pagerduty.com/v2/enqueue"


def _spec(**values: Any) -> dict[str, Any]:
    manifests = Helm("4").template(values={"pagerDuty": {"create": "always", **values}})
    spec: dict[str, Any] = of_kind(manifests, "AlertmanagerConfig")["spec"]
    return spec


def test_by_default_it_is_the_committed_one() -> None:
    """Route, inhibition and every text are those that grafana's own tests send to a PagerDuty."""
    spec = _spec()
    for receiver in spec["receivers"]:
        for config in receiver["pagerdutyConfigs"]:
            assert config.pop("url") == URL
    assert spec == COMMITTED


def test_the_key_comes_from_a_secret_and_never_from_a_value() -> None:
    """The routing key is named by Secret and key."""
    (receiver,) = _spec(secret="pd", secretKey="key")["receivers"]
    (config,) = receiver["pagerdutyConfigs"]
    assert config["routingKey"] == {"name": "pd", "key": "key"}


def test_links_lead_to_ones_own_grafana() -> None:
    """No link to the example address is left."""
    spec = yaml.safe_dump(_spec(grafanaUrl="https://grafana.internal.example.com/"))
    assert "https://grafana.internal.example.com/d/vllm-headroom-engine" in spec
    assert "https://grafana.example.com" not in spec


def test_one_severity_alone_can_page() -> None:
    """With critical alone, the route asks for it; grouping, and so the incident, stays the same."""
    route = _spec(severities=["critical"])["route"]
    assert {"name": "severity", "value": "critical", "matchType": "="} in route["matchers"]
    assert route["groupBy"] == COMMITTED["route"]["groupBy"]
    assert "severity" not in route["groupBy"]
