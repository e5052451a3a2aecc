"""values.yaml, its schema, and the README made from both."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.chart_readme import documented
from grafana.mixin.thresholds import Thresholds
from tests.deploy.tools import CHART, VERSIONS, Helm, RefusedError

VALUES = (CHART / "values.yaml").read_text()
SCHEMA = json.loads((CHART / "values.schema.json").read_text())

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"injektion": {}}, "injektion"),
    ({"vllm": {"prot": 8000}}, "prot"),
    ({"vllm": {"port": 0}}, "port"),
    ({"vllm": {"port": "http"}}, "port"),
    ({"vllm": {"scheme": "HTTP"}}, "scheme"),
    ({"image": {"repository": "UPPER/case"}}, "repository"),
    ({"image": {"digest": "sha256:short"}}, "digest"),
    ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    ({"exporter": {"port": 80}}, "port"),
    ({"exporter": {"host": "localhost"}}, "host"),
    ({"exporter": {"pollIntervalSeconds": 0}}, "pollIntervalSeconds"),
    ({"exporter": {"logLevel": "trace"}}, "logLevel"),
    ({"exporter": {"env": [{"name": "A", "value": "1", "valueFrom": {}}]}}, "env"),
    ({"exporter": {"env": [{"value": "1"}]}}, "env"),
    ({"page": {"scheme": "HTTPS"}}, "scheme"),
    ({"page": {"tlsSecret": "Not A Name"}}, "tlsSecret"),
    ({"page": {"tls": "a"}}, "tls"),
    ({"page": {"webConfigSecretKey": "../web.yml"}}, "webConfigSecretKey"),
    ({"nvml": {"visibleDevices": "first"}}, "visibleDevices"),
    ({"resources": {"limits": {"nvidia.com/gpu": "1"}}}, "nvidia.com/gpu"),
    ({"resources": {"limits": {"memory": "lots"}}}, "memory"),
    ({"probes": {"liveness": {"httpGet": {"path": "/health", "port": "headroom"}}}}, "path"),
    ({"probes": {"readiness": {"exec": {"command": ["true"]}}}}, "exec"),
    ({"injection": {"create": "sometimes"}}, "create"),
    ({"injection": {"namespaceSelector": {"team": "inference"}}}, "team"),
    ({"standalone": {"enabled": True}}, "targets"),
    ({"standalone": {"targets": ["chat-8b:8000"]}}, "targets"),
    ({"standalone": {"targets": ["http://user:secret@chat-8b:8000"]}}, "targets"),
    ({"networkPolicy": {"from": []}}, "from"),
    ({"monitor": {"kind": "Both"}}, "kind"),
    ({"monitor": {"interval": "15"}}, "interval"),
    ({"monitor": {"tlsConfig": "insecure"}}, "tlsConfig"),
    ({"monitor": {"authorization": {"type": "Bearer"}, "basicAuth": {"username": {}}}}, "monitor"),
    ({"rules": {"disabled": ["NodeDown"]}}, "disabled"),
    ({"rules": {"thresholds": {"kvLevel": 0.5}}}, "kvLevel"),
    ({"rules": {"thresholds": {"kvLevelRatio": 90}}}, "kvLevelRatio"),
    ({"rules": {"runbookBaseUrl": "wiki.example.com"}}, "runbookBaseUrl"),
    ({"dashboards": {"create": "auto"}}, "create"),
    ({"pagerDuty": {"secret": ""}}, "secret"),
    ({"pagerDuty": {"severities": ["page"]}}, "severities"),
    ({"podResources": {"path": "kubelet.sock"}}, "path"),
    ({"commonLabels": {"team": "a b"}}, "team"),
]


@pytest.mark.parametrize(("values", "name"), WRONG, ids=lambda each: each if isinstance(each, str) else "")
def test_a_wrong_value_is_refused_by_its_name(values: dict[str, Any], name: str) -> None:
    """The schema refuses each wrong value, and says which value it is."""
    merged = _merged(yaml.safe_load(VALUES), values)
    found = [f"{error.json_path}: {error.message}" for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(merged)]
    assert found
    assert any(name in each for each in found), found


def _merged(values: Any, more: Any) -> Any:
    """The values as helm merges them: mappings key by key, anything else replaced."""
    if not isinstance(values, dict) or not isinstance(more, dict):
        return more
    return values | {key: _merged(values.get(key), item) for key, item in more.items()}


@pytest.mark.parametrize("major", VERSIONS)
def test_helm_stops_at_wrong_values_and_names_them(major: str) -> None:
    """Each helm, with a validator of its own, stops and names every one of the wrong values."""
    batches: list[dict[str, tuple[dict[str, Any], str]]] = []
    for values, name in WRONG:
        (key,) = values
        batch = next((each for each in batches if key not in each), None)
        if batch is None:
            batches.append(batch := {})
        batch[key] = (values, name)
    for batch in batches:
        with pytest.raises(RefusedError) as refused:
            Helm(major).template(values={key: values[key] for key, (values, _) in batch.items()})
        missing = [name for _, name in batch.values() if name not in str(refused.value)]
        assert missing == [], str(refused.value)


def test_a_policy_on_a_cluster_without_it_is_refused_with_the_way_out() -> None:
    """Asked for where it cannot be, the policy's absence is one clear line."""
    with pytest.raises(RefusedError, match=r"MutatingAdmissionPolicy, so Kubernetes 1\.36.* Use auto or never"):
        Helm("4").template(values={"injection": {"create": "always"}}, kubernetes="1.33.0")


def test_a_monitor_that_could_not_verify_the_page_is_refused_with_the_way_out() -> None:
    """A page by TLS needs to be told how its certificate is verified; what would fail silently is one clear line."""
    values = {"page": {"tlsSecret": "tls"}, "monitor": {"create": "always"}}
    with pytest.raises(RefusedError, match=r"monitor\.tlsConfig: .* Give ca and serverName, or insecureSkipVerify"):
        Helm("4").template(values=values)
    assert Helm("4").template(values=values | {"monitor": {"create": "never"}}) == []


def test_an_old_kubernetes_is_refused() -> None:
    """Before 1.29 there are no native sidecars by default, and the chart says so."""
    with pytest.raises(RefusedError, match=r"1\.29"):
        Helm("4").template(kubernetes="1.28.0")


def _leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path


def test_every_value_is_documented() -> None:
    """Each value, or a value around it, has a comment that the README shows."""
    paths = {value.path for value in documented(VALUES)}
    for leaf in _leaves(yaml.safe_load(VALUES)):
        assert any(leaf[:length] in paths for length in range(1, len(leaf) + 1)), ".".join(leaf)


def test_the_schema_names_exactly_the_values() -> None:
    """Schema and values.yaml have the same keys, and no mapping of the schema lets others in."""
    _same_keys(yaml.safe_load(VALUES), SCHEMA, ())


def _same_keys(values: dict[str, Any], schema: dict[str, Any], path: tuple[str, ...]) -> None:
    assert schema["additionalProperties"] is False, path
    # At the top, a parent chart passes these two to every dependency.
    passed = set() if path else {"global", "enabled"}
    assert set(schema["properties"]) - passed == set(values), path
    for key, value in values.items():
        inner = schema["properties"][key]
        if isinstance(value, dict) and "properties" in inner:
            _same_keys(value, inner, (*path, key))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return "".join([first, *(part.title() for part in rest)])


def test_thresholds_are_those_of_the_rules() -> None:
    """Names, defaults and meanings of the thresholds are the ones the rules are built with."""
    given = {value.path[-1]: value for value in documented(VALUES) if value.path[:2] == ("rules", "thresholds")}
    wanted = Thresholds.reference()
    camel = {
        "".join([first, *(part.title() for part in rest)]): name
        for name in wanted
        for first, *rest in [name.split("_")]
    }
    assert given.keys() == camel.keys()
    for key, name in camel.items():
        assert (str(given[key].default), given[key].meaning) == (wanted[name]["default"], wanted[name]["meaning"])
