"""The admission policy, evaluated on sample pods as the API server would."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from cel_expr_python import cel

from tests.conftest import Golden
from tests.deploy.admission import PolicyError, admit
from tests.deploy.tools import POLICY_API, Helm, Manifest, dump, of_kind

HERE = Path(__file__).parent
PODS = sorted((HERE / "pods").glob("*.yaml"))
UNTOUCHED = {"03-has-native-sidecar", "04-has-plain-sidecar", "05-unlabelled", "06-refused", "09-host-network"}

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "everything": {
        "sidecar": {"native": False},
        "shareProcessNamespace": True,
        "nvml": {"runtimeClassName": "nvidia"},
        "podResources": {"enabled": True, "runAsRoot": True},
        "controlGroups": {"enabled": True},
        "vllm": {"apiKeySecret": "vllm-key", "caSecret": "vllm-ca"},
        "page": {"tlsSecret": "page-tls", "bearerSecret": "page-token"},
        "monitor": {"create": "never"},
        "injection": {"prometheusAnnotations": True},
        "resources": {"requests": {"cpu": 1, "memory": 134217728}, "limits": {"cpu": 1.5, "memory": "128Mi"}},
        "probes": {"startup": {"httpGet": {"path": "/healthz", "port": "headroom"}}},
        "exporter": {"env": [{"name": "VLLM_HEADROOM_MAX_NUM_SEQS", "value": "256"}]},
    },
}


@cache
def _policy(variant: str) -> Manifest:
    manifests = Helm("4").template(values=VARIANTS[variant], apis=[POLICY_API])
    return of_kind(manifests, "MutatingAdmissionPolicy")


def _pod(name: str) -> Manifest:
    pod: Manifest = yaml.safe_load((HERE / "pods" / f"{name}.yaml").read_text())
    return pod


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("file", PODS, ids=lambda file: file.stem)
def test_sample_pods_become_what_the_golden_files_say(file: Path, variant: str, golden: Golden) -> None:
    """Each sample pod gets exactly the sidecar of its golden file, and the result is a valid pod."""
    admitted = admit(_policy(variant), _pod(file.stem))
    kubernetes_validate.validate(admitted, "1.37", strict=True)
    if file.stem in UNTOUCHED:
        assert admitted == _pod(file.stem)
    else:
        golden.check(HERE / "golden" / "admission" / variant / file.name, dump(admitted))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("file", PODS, ids=lambda file: file.stem)
def test_a_second_admission_changes_nothing(file: Path, variant: str) -> None:
    """A pod is never given two sidecars."""
    once = admit(_policy(variant), _pod(file.stem))
    assert admit(_policy(variant), once) == once


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("file", PODS, ids=lambda file: file.stem)
def test_the_servers_own_containers_stay_as_they_are(file: Path, variant: str) -> None:
    """Admission adds; it never changes or removes what the pod had."""
    before = _pod(file.stem)
    after = admit(_policy(variant), deepcopy(before))
    for place in ("containers", "initContainers", "volumes"):
        had = before["spec"].get(place, [])
        assert after["spec"].get(place, [])[: len(had)] == had
    for key, value in before["metadata"].items():
        assert after["metadata"][key] == (value if not isinstance(value, dict) else after["metadata"][key] | value)
    assert {**after["spec"], **before["spec"]}.keys() == after["spec"].keys()


@pytest.mark.parametrize("port", ["94x8", "99999", "80", ""])
def test_a_wrong_port_on_the_hosts_network_is_no_port(port: str) -> None:
    """On the host's network a wrong port must not become the default one, which two pods would fight for."""
    pod = _pod("10-host-network-with-port")
    pod["metadata"]["annotations"]["vllm-headroom/listen-port"] = port
    assert admit(_policy("default"), deepcopy(pod)) == pod


def test_a_failure_never_keeps_a_pod_from_starting() -> None:
    """Where the policy fails, the API server lets the pod pass as it was."""
    assert _policy("default")["spec"]["failurePolicy"] == "Ignore"


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_expression_is_cel(variant: str) -> None:
    """Google's own CEL accepts every expression; conditions are boolean, and no type is mixed up."""
    spec = _policy(variant)["spec"]
    environment = cel.NewEnv(variables={"object": cel.Type.DYN, "variables": cel.Type.DYN})
    for condition in spec["matchConditions"]:
        assert environment.compile(condition["expression"]).return_type() == cel.Type.BOOL
    for variable in spec["variables"]:
        environment.compile(variable["expression"])
    for mutation in spec["mutations"]:
        # The patch's types exist in the API server alone, so here it is parsed only.
        environment.compile(mutation["jsonPatch"]["expression"], disable_check=True)


def test_patch_types_are_unknown_outside_mutations() -> None:
    """The stand-in for the API server refuses what the API server refuses: object literals in variables."""
    policy = deepcopy(_policy("default"))
    policy["spec"]["variables"][-1]["expression"] = 'Object.spec.volumes{name: "x"}.name'
    with pytest.raises(PolicyError, match="Object"):
        admit(policy, _pod("01-plain"))


def test_a_mixed_map_is_refused() -> None:
    """The stand-in for the API server refuses a map of a number and a text, as Kubernetes' CEL does."""
    policy = deepcopy(_policy("default"))
    patch = policy["spec"]["mutations"][0]["jsonPatch"]
    assert '"cpu": "100m"' in patch["expression"]
    patch["expression"] = patch["expression"].replace('"cpu": "100m"', '"cpu": 1')
    with pytest.raises(PolicyError, match="mixes types"):
        admit(policy, _pod("01-plain"))


def test_a_typed_object_in_the_wrong_field_is_refused() -> None:
    """The stand-in for the API server checks that a type names its field."""
    policy = deepcopy(_policy("default"))
    patch = policy["spec"]["mutations"][0]["jsonPatch"]
    right, wrong = (f"resources: Object.spec.initContainers.{field}{{" for field in ("resources", "ports"))
    assert right in patch["expression"]
    patch["expression"] = patch["expression"].replace(right, wrong)
    with pytest.raises(PolicyError, match="stands in"):
        admit(policy, _pod("01-plain"))
