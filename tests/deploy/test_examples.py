"""The examples: each renders, and what it renders is a valid pod that has the sidecar, pointed at its vLLM."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser
import pytest
import yaml

from exporter.metrics import TABLE
from tests.deploy import crds
from tests.deploy.admission import admit
from tests.deploy.tools import (
    OPERATOR_APIS,
    POLICY_API,
    ROOT,
    VERSIONS,
    Helm,
    Manifest,
    documents,
    of_kind,
    run,
    tool,
)

EXAMPLES = ROOT / "deploy" / "examples"
STANDINS = Path(__file__).parent / "standins"


def _kustomize(folder: Path) -> list[Manifest]:
    done = run([tool("4", "kubectl"), "kustomize", folder])
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def _pod(template: Mapping[str, Any], spec: Mapping[str, Any]) -> Manifest:
    """A pod with a template's labels and annotations, as its controller makes it."""
    metadata = {key: template[key] for key in ("labels", "annotations") if template.get(key)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", **metadata}, "spec": dict(spec)}


def _injected(pod: Manifest) -> Manifest:
    """The pod after the admission policy of the chart at its defaults."""
    return admit(of_kind(Helm("4").template(apis=[POLICY_API]), "MutatingAdmissionPolicy"), pod)


def _checked(pod: Manifest, url: str) -> dict[str, str]:
    """The sidecar's environment in a pod that is valid, is scraped, and watches `url`."""
    kubernetes_validate.validate(pod, "1.37", strict=True)
    assert pod["metadata"]["labels"]["vllm-headroom/scrape"] == "true"
    (sidecar,) = [each for each in pod["spec"]["initContainers"] if each["name"] == "vllm-headroom"]
    assert sidecar["restartPolicy"] == "Always"
    volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])}
    assert {mount["name"] for mount in sidecar.get("volumeMounts", [])} <= volumes
    environment = {each["name"]: each["value"] for each in sidecar["env"]}
    assert environment["VLLM_HEADROOM_VLLM_URL"] == url
    return environment


@pytest.mark.parametrize("major", VERSIONS)
def test_vllms_own_chart(major: str) -> None:
    """The overlay puts the sidecar after the download, with the model's volume."""
    overlay = EXAMPLES / "vllm-chart" / "values.yaml"
    (deployment,) = Helm(major).template(overlay, chart=STANDINS / "vllm-chart", release="vllm")
    kubernetes_validate.validate(deployment, "1.37", strict=True)
    template = deployment["spec"]["template"]
    environment = _checked(_pod(template["metadata"], template["spec"]), "http://127.0.0.1:8000")
    assert environment["VLLM_HEADROOM_MODEL_CONFIG"] == "/data"
    assert [each["name"] for each in template["spec"]["initContainers"]] == ["wait-download-model", "vllm-headroom"]


@pytest.mark.parametrize("major", VERSIONS)
def test_llm_d_modelservice(major: str) -> None:
    """Decode pods are watched behind their routing proxy, prefill pods on their own port."""
    overlay = EXAMPLES / "llm-d-modelservice" / "values.yaml"
    decode, prefill = Helm(major).template(overlay, chart=STANDINS / "llm-d-modelservice")
    for deployment, port in ((decode, 8200), (prefill, 8000)):
        kubernetes_validate.validate(deployment, "1.37", strict=True)
        template = deployment["spec"]["template"]
        assert template["spec"]["containers"][0]["args"] == ["--port", str(port)]
        _checked(_pod(template["metadata"], template["spec"]), f"http://127.0.0.1:{port}")


def test_production_stack_by_label() -> None:
    """The overlay labels the engines' pods, and the admission policy gives them the sidecar."""
    overlay = EXAMPLES / "production-stack" / "values.yaml"
    engine, router = Helm("4").template(overlay, chart=STANDINS / "production-stack", release="chat")
    template = engine["spec"]["template"]
    _checked(_injected(_pod(template["metadata"], template["spec"])), "http://127.0.0.1:8000")
    plain = _pod(router["spec"]["template"]["metadata"], router["spec"]["template"]["spec"])
    assert _injected(plain) == plain


def test_production_stack_by_kustomize(tmp_path: Path) -> None:
    """Without the policy, the kustomization adds the sidecar to the rendered engines and not to the router."""
    shutil.copytree(ROOT / "deploy" / "kustomize", tmp_path / "kustomize")
    folder = shutil.copytree(EXAMPLES / "production-stack", tmp_path / "examples" / "production-stack")
    overlay = folder / "values.yaml"
    rendered = Helm("4")("template", "chat", STANDINS / "production-stack", "--values", overlay)
    (folder / "stack.yaml").write_text(rendered)
    engine, router = _kustomize(folder)
    template = engine["spec"]["template"]
    _checked(_pod(template["metadata"], template["spec"]), "http://127.0.0.1:8000")
    assert "initContainers" not in router["spec"]["template"]["spec"]


def test_tensor_parallel_deployment() -> None:
    """The sidecar knows the model's path and over how many GPUs vLLM is spread."""
    (deployment,) = _kustomize(EXAMPLES / "tensor-parallel")
    kubernetes_validate.validate(deployment, "1.37", strict=True)
    template = deployment["spec"]["template"]
    environment = _checked(_pod(template["metadata"], template["spec"]), "http://127.0.0.1:8000")
    assert environment["VLLM_HEADROOM_TENSOR_PARALLEL_SIZE"] == "4"
    assert environment["VLLM_HEADROOM_MODEL_CONFIG"] == "/models/llama-70b"


def test_kustomize_sets_the_sidecars_image(tmp_path: Path) -> None:
    """`images` reaches the native sidecar, so nobody needs to edit what is made from the chart."""
    shutil.copytree(ROOT / "deploy" / "kustomize", tmp_path / "kustomize")
    folder = shutil.copytree(EXAMPLES / "tensor-parallel", tmp_path / "examples" / "tensor-parallel")
    image = {"name": "vllm-headroom", "newName": "registry.example.com/vllm-headroom", "newTag": "1.2.3"}
    kustomization = folder / "kustomization.yaml"
    kustomization.write_text(kustomization.read_text() + yaml.safe_dump({"images": [image]}))
    (deployment,) = _kustomize(folder)
    (sidecar,) = deployment["spec"]["template"]["spec"]["initContainers"]
    assert sidecar["image"] == "registry.example.com/vllm-headroom:1.2.3"


def test_leader_worker_set() -> None:
    """The leader, which serves vLLM's page, gets the sidecar; the workers don't."""
    (workload,) = _kustomize(EXAMPLES / "leaderworkerset")
    leader = workload["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    worker = workload["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    environment = _checked(_pod(leader["metadata"], leader["spec"]), "http://127.0.0.1:8080")
    assert environment["VLLM_HEADROOM_TENSOR_PARALLEL_SIZE"] == "8"
    assert environment["VLLM_HEADROOM_PIPELINE_PARALLEL_SIZE"] == "2"
    assert "initContainers" not in worker["spec"]


def test_kserve_inference_service() -> None:
    """The predictor's pods ask the policy for the sidecar; the model's volume, which KServe adds, comes along."""
    (service,) = documents((EXAMPLES / "kserve" / "inferenceservice.yaml").read_text())
    predictor = service["spec"]["predictor"]
    # What KServe's own webhook does for pvc:// before the policy runs.
    mount = {"name": "kserve-pvc-source", "mountPath": "/mnt/models", "readOnly": True}
    container = predictor["containers"][0] | {"volumeMounts": [mount]}
    spec = {"containers": [container], "volumes": [{"name": "kserve-pvc-source", "emptyDir": {}}]}
    environment = _checked(_injected(_pod(predictor, spec)), "http://127.0.0.1:8080")
    assert environment["VLLM_HEADROOM_MODEL_CONFIG"] == "/mnt/models"


def test_kserve_llm_inference_service() -> None:
    """The template holds the sidecar, which accepts KServe's self-signed certificate."""
    (service,) = documents((EXAMPLES / "kserve" / "llminferenceservice.yaml").read_text())
    spec = service["spec"]
    # KServe merges its own template in, by container name; it brings the image.
    template = spec["template"] | {"containers": [{"image": "vllm", **spec["template"]["containers"][0]}]}
    environment = _checked(_pod(spec, template), "https://127.0.0.1:8000")
    assert environment["VLLM_HEADROOM_TLS_SKIP_VERIFY"] == "true"


@pytest.mark.parametrize("major", VERSIONS)
def test_a_chart_of_ones_own(major: str, tmp_path: Path) -> None:
    """A parent chart builds its dependency, includes the template, and gets the monitor and the rules as well."""
    shutil.copytree(ROOT / "deploy" / "helm", tmp_path / "helm")
    chart = shutil.copytree(EXAMPLES / "own-chart", tmp_path / "examples" / "own-chart")
    Helm(major)("dependency", "build", chart)
    Helm(major)("lint", "--strict", chart)
    apis = (POLICY_API, *OPERATOR_APIS)
    values = {"port": 8123, "vllm-headroom": {"image": {"repository": "registry.example.com/vllm-headroom"}}}
    manifests = Helm(major).template(values=values, chart=chart, apis=apis)
    assert {each["kind"] for each in manifests} == {"Deployment", "PodMonitor", "PrometheusRule"}
    template = of_kind(manifests, "Deployment")["spec"]["template"]
    pod = _pod(template["metadata"], template["spec"])
    _checked(pod, "http://127.0.0.1:8123")
    assert pod["spec"]["initContainers"][0]["image"] == "registry.example.com/vllm-headroom:0.1.0"


def _queries() -> dict[str, str]:
    scaled = yaml.safe_load((EXAMPLES / "autoscaling" / "keda-scaledobject.yaml").read_text())
    adapter = yaml.safe_load((EXAMPLES / "autoscaling" / "prometheus-adapter-values.yaml").read_text())
    triggers = [trigger["metadata"] for trigger in scaled["spec"]["triggers"]]
    queries = {f"keda {trigger['threshold']}": trigger["query"] for trigger in triggers}
    for kind in ("custom", "external"):
        for rule in adapter["rules"][kind]:
            queries[f"{kind} series"] = rule["seriesQuery"]
            series = rule["seriesQuery"].partition("{")[0]
            query = rule["metricsQuery"].replace("<<.Series>>", series).replace("<<.GroupBy>>", "pod")
            queries[f"{kind} query"] = query.replace("<<.LabelMatchers>>", 'namespace="llm"')
    return queries


@pytest.mark.parametrize(("name", "query"), _queries().items())
def test_autoscalers_ask_for_series_that_exist(name: str, query: str) -> None:
    """Every query of the autoscaling examples is PromQL, and each metric in it is one that the exporter exports."""
    promql_parser.parse(query)
    exported = {family.name for family in TABLE}
    named = {word for word in query.replace("(", " ").replace("{", " ").split() if word.startswith("vllm_headroom_")}
    assert named
    assert named <= exported


def test_the_scaled_object_fits_its_crd() -> None:
    """KEDA knows every field of the example."""
    assert crds.findings(documents((EXAMPLES / "autoscaling" / "keda-scaledobject.yaml").read_text())) == []


def test_the_autoscaler_asks_for_what_the_adapter_offers() -> None:
    """The HorizontalPodAutoscaler is valid, and its metrics are the ones the adapter's values make."""
    (autoscaler,) = documents((EXAMPLES / "autoscaling" / "hpa.yaml").read_text())
    kubernetes_validate.validate(autoscaler, "1.37", strict=True)
    rules = yaml.safe_load((EXAMPLES / "autoscaling" / "prometheus-adapter-values.yaml").read_text())["rules"]
    pods, external = autoscaler["spec"]["metrics"]
    assert pods["pods"]["metric"]["name"] == rules["custom"][0]["name"]["as"]
    assert external["external"]["metric"]["name"] == rules["external"][0]["name"]["as"]
