"""What the sidecar may do in a cluster: as little as possible."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.admission import admit
from tests.deploy.tools import CHART, OPERATOR_APIS, POLICY_API, Helm, Manifest, of_kind

HERE = Path(__file__).parent
APIS = (POLICY_API, *OPERATOR_APIS)
CASES = sorted((CHART / "ci").glob("*-values.yaml"))
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def restricted(spec: dict[str, Any]) -> Iterator[str]:
    """What the PodSecurity level restricted has against a pod's spec."""
    pod = spec.get("securityContext", {})
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield field
    for volume in spec.get("volumes", []):
        yield from (f"volume {volume['name']}: {kind}" for kind in volume.keys() - {"name"} - VOLUMES)
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        own = container.get("securityContext", {})
        name = container["name"]
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            yield f"{name}: may gain privileges"
        capabilities = own.get("capabilities", {})
        if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            yield f"{name}: has capabilities"
        if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True or own.get("runAsUser", 1) == 0:
            yield f"{name}: may run as root"
        profile = own.get("seccompProfile", pod.get("seccompProfile", {})).get("type")
        if profile not in ("RuntimeDefault", "Localhost"):
            yield f"{name}: has no seccomp profile"
        yield from (f"{name}: host port" for port in container.get("ports", []) if port.get("hostPort"))


def _pods(manifests: list[Manifest]) -> Iterator[dict[str, Any]]:
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            yield manifest["spec"]["template"]["spec"]
        elif manifest["kind"] == "Pod":
            yield manifest["spec"]


def _injected(**values: Any) -> dict[str, Any]:
    """A pod that meets restricted by itself, after the policy."""
    pod = yaml.safe_load((HERE / "pods" / "01-plain.yaml").read_text())
    pod["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    policy = of_kind(Helm("4").template(values=values, apis=[POLICY_API]), "MutatingAdmissionPolicy")
    spec: dict[str, Any] = admit(policy, pod)["spec"]
    return spec


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_every_pod_of_the_chart_meets_restricted(file: Path) -> None:
    """No pod that the chart creates breaks a rule of the PodSecurity level restricted."""
    for spec in _pods(Helm("4").template(file, apis=APIS)):
        assert list(restricted(spec)) == []
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False


@pytest.mark.parametrize("native", [True, False])
def test_a_restricted_pod_stays_restricted_with_the_sidecar(native: bool) -> None:
    """The sidecar breaks no rule of restricted, so it can go wherever its server can."""
    assert list(restricted(_injected(sidecar={"native": native}))) == []


def test_what_reaches_into_the_node_is_found_and_explained() -> None:
    """The kubelet's socket and the node's control groups cost a hostPath, or uid 0; values.yaml says so."""
    values = (CHART / "values.yaml").read_text()
    assert list(restricted(_injected(controlGroups={"enabled": True}))) == ["volume vllm-headroom-cgroup: hostPath"]
    findings = list(restricted(_injected(podResources={"enabled": True, "runAsRoot": True})))
    assert findings == ["volume vllm-headroom-pod-resources: hostPath", "vllm-headroom: may run as root"]
    explained = " ".join(line.strip(" #") for line in values.splitlines())
    assert explained.count("A hostPath volume: the PodSecurity level baseline forbids it.") == 2
    assert "Run the exporter as uid 0" in explained


@pytest.mark.parametrize("profile", ["hostNetwork", "privileged", "capabilities", "seccompProfile"])
def test_the_check_finds_what_restricted_forbids(profile: str) -> None:
    """The check above can fail: each loosening is found."""
    spec = _injected()
    container = spec["initContainers"][0]
    if profile == "hostNetwork":
        spec["hostNetwork"] = True
    elif profile == "privileged":
        container["securityContext"]["privileged"] = True
    else:
        del container["securityContext"][profile]
    assert len(list(restricted(spec))) == 1


def _sidecar(**values: Any) -> dict[str, Any]:
    found: dict[str, Any] = _injected(**values)["initContainers"][0]
    return found


def test_the_sidecar_never_asks_for_a_gpu() -> None:
    """GPU memory is read through the driver's library; the sidecar takes no GPU from anyone."""
    container = _sidecar()
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    for amounts in container["resources"].values():
        assert amounts.keys() == {"cpu", "memory"}


def test_the_sidecar_keeps_a_guaranteed_pod_guaranteed() -> None:
    """Requests equal limits, so the server's quality of service does not fall because it is watched."""
    resources = _sidecar()["resources"]
    assert resources["requests"] == resources["limits"]


def test_probes_ask_the_exporter_alone_and_readiness_is_not_asked() -> None:
    """VLLM's troubles never restart the sidecar, and the sidecar's never take vLLM out of service."""
    container = _sidecar()
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "headroom"}
    assert not container.keys() & {"readinessProbe", "startupProbe"}


def test_the_service_account_token_is_out_of_reach() -> None:
    """An empty volume lies over the token's path; the API server then mounts no token into this container."""
    spec = _injected()
    (mount,) = spec["initContainers"][0]["volumeMounts"]
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert {"name": mount["name"], "emptyDir": {}} in spec["volumes"]


def test_only_prometheus_reaches_the_standalone_pod() -> None:
    """The NetworkPolicy selects that pod and lets one peer in, on one port."""
    manifests = Helm("4").template(CHART / "ci" / "standalone-values.yaml", apis=APIS)
    policy = of_kind(manifests, "NetworkPolicy")["spec"]
    pod = of_kind(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= pod.items()
    assert policy["policyTypes"] == ["Ingress"]
    ((rule),) = policy["ingress"]
    assert rule["ports"] == [{"port": "headroom", "protocol": "TCP"}]
    assert [peer.keys() for peer in rule["from"]] == [{"namespaceSelector", "podSelector"}]
