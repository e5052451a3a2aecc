"""The chart, linted and rendered by real helm with every values file of ci/, and checked as the API server would."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.conftest import Golden
from tests.deploy import crds
from tests.deploy.tools import CHART, OPERATOR_APIS, POLICY_API, ROOT, VERSIONS, Helm, Manifest, dump, kinds, of_kind

HERE = Path(__file__).parent
CASES = sorted((CHART / "ci").glob("*-values.yaml"))
APIS = (POLICY_API, *OPERATOR_APIS)
KUBERNETES = ("1.29", "1.33", "1.37")


def _name(file: Path) -> str:
    return file.stem.removesuffix("-values")


@cache
def _rendered(major: str, file: Path, apis: Sequence[str] = APIS, kubernetes: str = "1.37.0") -> list[Manifest]:
    return Helm(major).template(file, apis=apis, kubernetes=kubernetes)


def _short(manifest: Manifest) -> Manifest:
    """The manifest without the copies of grafana/, which have tests of their own."""
    if manifest["kind"] == "PrometheusRule":
        return manifest | {"spec": {"groups": [group["name"] for group in manifest["spec"]["groups"]]}}
    if manifest["kind"] == "ConfigMap":
        return manifest | {"data": sorted(manifest["data"])}
    return manifest


@pytest.mark.parametrize("major", VERSIONS)
def test_lint_has_nothing_to_say(major: str) -> None:
    """`helm lint --strict` accepts the chart with every values file."""
    for file in CASES:
        assert "0 chart(s) failed" in Helm(major)("lint", "--strict", CHART, "--values", file)


@pytest.mark.parametrize("file", CASES, ids=_name)
def test_both_helms_render_what_the_golden_file_says(file: Path, golden: Golden) -> None:
    """Helm 3 and helm 4 render the same manifests, those of the golden file."""
    three, four = (_rendered(major, file) for major in VERSIONS)
    assert three == four
    text = "---\n".join(dump(_short(manifest)) for manifest in four)
    golden.check(HERE / "golden" / "chart" / f"{_name(file)}.yaml", text)


@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("file", CASES, ids=_name)
def test_the_api_server_knows_every_field(file: Path, kubernetes: str) -> None:
    """Everything rendered is valid, strictly, for the oldest, a middle and the newest Kubernetes."""
    policy = [POLICY_API] if kubernetes == "1.37" else []
    rendered = _rendered(
        "4", file, (*policy, *OPERATOR_APIS), "1.37.0" if _asks_for_policy(file) else f"{kubernetes}.0"
    )
    for manifest in rendered:
        if crds.is_known(manifest) or (manifest["kind"].startswith("MutatingAdmission") and not policy):
            continue
        kubernetes_validate.validate(manifest, kubernetes, strict=True)


def _policy_versions(manifests: Sequence[Manifest]) -> set[str]:
    return {each["apiVersion"] for each in manifests if each["kind"].startswith("MutatingAdmissionPolicy")}


def _asks_for_policy(file: Path) -> bool:
    return "injection:\n  create: always" in file.read_text()


def test_custom_resources_fit_their_crds() -> None:
    """Every monitor, rule and Alertmanager configuration fits the operator's schema, key by key."""
    resources = [each for file in CASES for each in _rendered("4", file) if crds.is_known(each)]
    assert set(kinds(resources)) == {"AlertmanagerConfig", "PodMonitor", "PrometheusRule", "ServiceMonitor"}
    assert crds.findings(resources) == []


def test_the_crd_check_finds_what_is_wrong() -> None:
    """The check above sees a wrong type, a missing field and an unknown key."""
    endpoint: dict[str, Any] = {"port": 9488, "intervall": "5s"}
    metadata = {"name": "x"}
    monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": metadata}
    found = crds.findings([monitor | {"spec": {"podMetricsEndpoints": [endpoint]}}])
    assert any("port must be string" in each for each in found)
    assert any("selector" in each for each in found)
    assert any(".spec.podMetricsEndpoints.intervall" in each for each in found)


def test_nothing_that_the_cluster_lacks_is_created() -> None:
    """Without the policy's and the operator's kinds, the default values create nothing at all."""
    assert Helm("4").template() == []


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_there_is_one_monitor_and_never_both(kind: str) -> None:
    """Either kind of monitor is created, never two that would scrape twice."""
    manifests = Helm("4").template(values={"monitor": {"kind": kind}}, apis=OPERATOR_APIS)
    assert [each for each in kinds(manifests) if each.endswith("Monitor")] == [kind]
    assert ("Service" in kinds(manifests)) == (kind == "ServiceMonitor")


def test_the_monitor_finds_the_sidecars_port_and_label() -> None:
    """Label, port name and path of the monitor are those of the pods that the policy makes."""
    manifests = Helm("4").template(apis=APIS)
    monitor = of_kind(manifests, "PodMonitor")["spec"]
    mutation = of_kind(manifests, "MutatingAdmissionPolicy")["spec"]["mutations"][0]["jsonPatch"]["expression"]
    assert monitor["selector"]["matchLabels"] == {"vllm-headroom/scrape": "true"}
    assert 'path: "/metadata/labels/vllm-headroom~1scrape", value: "true"' in mutation
    assert monitor["podMetricsEndpoints"][0]["port"] in mutation
    assert monitor["podMetricsEndpoints"][0]["path"] == "/metrics"


@pytest.mark.parametrize(("kubernetes", "apis", "version"), [("1.36.2", (), "v1"), ("1.34.0", (), "v1beta1")])
def test_the_policys_version_follows_the_cluster(kubernetes: str, apis: Sequence[str], version: str) -> None:
    """Asked for, the policy has the version that this Kubernetes serves."""
    manifests = Helm("3").template(values={"injection": {"create": "always"}}, kubernetes=kubernetes, apis=apis)
    assert _policy_versions(manifests) == {f"admissionregistration.k8s.io/{version}"}


def test_a_cluster_with_only_the_beta_gets_the_beta() -> None:
    """By capability, v1beta1 is used where v1 isn't served."""
    manifests = Helm("4").template(apis=[POLICY_API.replace("/v1/", "/v1beta1/")], kubernetes="1.35.1")
    assert _policy_versions(manifests) == {"admissionregistration.k8s.io/v1beta1"}
    kubernetes_validate.validate(of_kind(manifests, "MutatingAdmissionPolicy"), "1.34", strict=True)


def test_dashboards_are_the_committed_ones() -> None:
    """The ConfigMaps hold the dashboards of grafana/, labelled for Grafana's sidecar, under names of their own."""
    manifests = Helm("4").template(values={"dashboards": {"create": "always"}})
    boards = {name: json.loads(text) for each in manifests for name, text in each["data"].items()}
    committed = {path.name: json.loads(path.read_text()) for path in (ROOT / "grafana" / "dashboards").glob("*.json")}
    assert boards == committed
    assert len({each["metadata"]["name"] for each in manifests}) == len(committed) > 0
    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in manifests)
    assert all(each["metadata"]["annotations"]["grafana_folder"] == "vLLM" for each in manifests)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, True),
        ({"sidecar": {"native": False}}, False),
        ({"injection": {"namespaceSelector": {"matchLabels": {"team": "a"}}}}, False),
        ({"injection": {"create": "never"}}, False),
        ({"injection": {"create": "never"}, "standalone": {"enabled": True, "targets": ["http://a:8000"]}}, True),
    ],
    ids=["injected", "plain sidecar", "other namespaces", "nothing", "standalone"],
)
def test_helm_test_asks_a_page_that_can_answer(values: dict[str, Any], expected: bool) -> None:
    """There is a test pod exactly where a page exists for it and it can end."""
    manifests = Helm("4").template(values=values, apis=APIS)
    assert ("Pod" in kinds(manifests)) == expected


def test_the_notes_say_what_to_check_next() -> None:
    """After an install, helm says that the image is a placeholder, what watches, and what to look at.

    helm 3 asks a cluster before it shows notes, so helm 4 alone shows them here.
    """
    install = ("install", "headroom", CHART, "--dry-run=client")
    first = Helm("4")(*install)
    assert 'FIRST: image.repository is "vllm-headroom"' in first
    assert "Nothing scrapes it yet" in first
    values = ("--set", "image.repository=registry.example.com/headroom", "--set", "injection.create=always")
    standalone = ("--set", "standalone.enabled=true", "--set", "standalone.targets={http://chat:8000}")
    said = Helm("4")(*install, *values, *standalone, "--set", "monitor.create=always")
    assert "FIRST" not in said
    assert "Page: whoever reaches port 9488 may read it" in said
    secret = ("--set", "page.bearerSecret=token")
    assert "Page: what opens it goes over the network unencrypted" in Helm("4")(*install, *secret)
    assert "Page: " not in Helm("4")(*install, *secret, "--set", "page.tlsSecret=tls")
    for told in ("helm test headroom", "vllm-headroom/inject", "watches http://chat:8000", "vllm-headroom doctor"):
        assert told in said
