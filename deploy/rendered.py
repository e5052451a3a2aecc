"""What people apply without helm, rendered by helm from the chart."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

NOTICE = "# Made by deploy/build.py from the chart; change the chart and build again.\n"
POLICY = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
KUBERNETES = "1.37.0"

# One template that prints the sidecar the way a parent chart includes it.
_PARENT = "apiVersion: v2\nname: parent\nversion: 0.0.0\n"
_INCLUDES = """\
{{- $headroom := index .Subcharts "vllm-headroom" }}
sidecar:
  {{- include "vllm-headroom.sidecar" (merge (dict "headroom" $headroom) .Values.call) | nindent 2 }}
volumes:
  {{- include "vllm-headroom.volumes" (dict "headroom" $headroom) | nindent 2 }}
"""


@cache
def helm() -> str:
    """The path of helm."""
    command = [sys.executable, str(Path(__file__).parent.parent / "scripts" / "get-helm"), "4"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def template(chart: Path, *words: str, values: Mapping[str, Any] | None = None) -> str:
    """What `helm template` prints for the chart."""
    command = [helm(), "template", "vllm-headroom", str(chart), "--kube-version", KUBERNETES, *words, "--values", "-"]
    text = yaml.safe_dump(dict(values or {}))
    return subprocess.run(command, check=True, capture_output=True, text=True, input=text).stdout


def sidecar(chart: Path, values: Mapping[str, Any] | None = None, **call: Any) -> tuple[dict[str, Any], list[Any]]:
    """The sidecar's container and its volumes, as a parent chart gets them with these values and arguments."""
    with tempfile.TemporaryDirectory() as scratch:
        parent = Path(scratch)
        (parent / "templates").mkdir()
        (parent / "charts").mkdir()
        (parent / "Chart.yaml").write_text(_PARENT)
        (parent / "templates" / "sidecar.yaml").write_text(_INCLUDES)
        (parent / "charts" / "vllm-headroom").symlink_to(chart.resolve())
        words = ("--show-only", "templates/sidecar.yaml")
        text = template(parent, *words, values={"call": call, "vllm-headroom": dict(values or {})})
    made = yaml.safe_load(text)
    return made["sidecar"][0], made["volumes"] or []


def manifests(chart: Path, kinds: Sequence[str], namespace: str, values: Mapping[str, Any]) -> str:
    """The chart's manifests of these kinds as one plain stream, without what speaks of helm."""
    text = template(chart, "--namespace", namespace, "--api-versions", POLICY, values=values)
    parts = [part for part in re.split(r"^---$", text, flags=re.MULTILINE) if part.strip()]
    wanted = [part for part in parts if (yaml.safe_load(part) or {}).get("kind") in kinds]
    plain = re.compile(r"^(# Source: .*| *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*)\n", re.MULTILINE)
    return NOTICE + "---\n" + "---\n".join(plain.sub("", part).strip() + "\n" for part in wanted)


class _Dumper(yaml.SafeDumper):
    """Lists are indented under their key, as people write manifests."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 – as PyYAML has it
        super().increase_indent(flow, False)


def named_first(value: Any) -> Any:
    """The value with the name of each thing before the rest, as people write containers and volumes."""
    if isinstance(value, dict):
        return {key: named_first(value[key]) for key in sorted(value, key=lambda key: key != "name")}
    return [named_first(item) for item in value] if isinstance(value, list) else value


def dump(value: Any) -> str:
    """YAML, keys in their order."""
    return yaml.dump(named_first(value), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def rendered(chart: Path) -> dict[str, str]:
    """Path under deploy/ → text of every file that helm renders."""
    off = {"injection": {"create": "never"}}
    alone = off | {
        "standalone": {"enabled": True, "targets": ["http://chat-8b-0.chat-8b.llm.svc:8000"]},
        "networkPolicy": {"enabled": True},
    }
    watched = off | {"monitor": {"create": "always"}, "rules": {"create": "always"}}
    files = {
        "manifests/injection.yaml": manifests(
            chart, ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"], "default", {}
        ),
        "manifests/standalone.yaml": manifests(
            chart, ["Deployment", "Service", "NetworkPolicy"], "observability", alone
        ),
        "manifests/monitoring.yaml": manifests(chart, ["PodMonitor", "PrometheusRule"], "observability", watched),
    }
    return files | _kustomize(chart) | _examples(chart)


def _kustomize(chart: Path) -> dict[str, str]:
    """The component that adds the sidecar to every Deployment and StatefulSet labelled for it."""
    container, volumes = sidecar(chart)
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "any"},
        "spec": {
            "template": {
                "metadata": {"labels": {"vllm-headroom/scrape": "true"}},
                "spec": {"initContainers": [container], "volumes": volumes},
            }
        },
    }
    return {"kustomize/sidecar/sidecar.yaml": NOTICE + dump(patch)}


def _examples(chart: Path) -> dict[str, str]:
    """The examples that must hold the sidecar itself. Their charts have no place for its volume."""
    bare = {"sidecar": {"hideServiceAccountToken": False}}
    scraped = {"vllm-headroom/scrape": "true"}
    model = {"modelConfig": "/data", "mounts": [{"name": "vllm-storage", "mountPath": "/data", "readOnly": True}]}
    chart_of_vllm = {"labels": scraped, "extraInit": {"initContainers": [sidecar(chart, bare, **model)[0]]}}
    llmd = {
        "modelArtifacts": {"labels": scraped},
        "decode": {"initContainers": [sidecar(chart, bare, port=8200)[0]]},
        "prefill": {"initContainers": [sidecar(chart, bare, port=8000)[0]]},
    }
    self_signed = bare | {"vllm": {"tlsSkipVerify": True}}
    llm_service = {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": "chat-8b"},
        "spec": {
            "model": {"uri": "hf://Qwen/Qwen3-8B", "name": "Qwen/Qwen3-8B"},
            "labels": scraped,
            "template": {
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
                "initContainers": [sidecar(chart, self_signed, scheme="https")[0]],
            },
        },
    }
    leader, volumes = sidecar(chart, port=8080, tensorParallelSize=8, pipelineParallelSize=2)
    place = "/spec/leaderWorkerTemplate/leaderTemplate"
    lws = [
        {"op": "add", "path": f"{place}/metadata/labels/vllm-headroom~1scrape", "value": "true"},
        {"op": "add", "path": f"{place}/spec/initContainers", "value": [leader]},
        *({"op": "add", "path": f"{place}/spec/volumes/-", "value": volume} for volume in volumes),
    ]
    return {
        "examples/vllm-chart/values.yaml": NOTICE + _VLLM_CHART + dump(chart_of_vllm),
        "examples/llm-d-modelservice/values.yaml": NOTICE + _LLM_D + dump(llmd),
        "examples/kserve/llminferenceservice.yaml": NOTICE + _LLM_SERVICE + dump(llm_service),
        "examples/leaderworkerset/sidecar.yaml": NOTICE + _LWS + dump(lws),
    }


_VLLM_CHART = """\
# Values for vLLM's own chart (examples/deployment/chart-helm, 0.0.1), beside yours:
#   helm upgrade --install vllm ./chart-helm -f yours.yaml -f values.yaml
# The chart keeps the model on a volume called RELEASE-storage: `vllm-storage` here, for a release called vllm.
# The chart puts `labels` into the Deployment's selector too, which cannot change: on a release that exists already,
# leave `labels` out, and select the pods in a PodMonitor of yours.
"""
_LLM_D = """\
# Values for llm-d's modelservice chart (llm-d-modelservice, v0.4), beside yours. Decode pods have a routing proxy on
# 8000 and vLLM on 8200; prefill pods have vLLM on 8000. Where you changed routing.proxy.targetPort or
# routing.servicePort, change VLLM_HEADROOM_VLLM_URL.
"""
_LLM_SERVICE = """\
# The template is merged over KServe's own, so `main` needs only what you change. Some versions of KServe serve vLLM by
# TLS with a self-signed certificate, as here; where yours doesn't, make VLLM_HEADROOM_VLLM_URL http://127.0.0.1:8000.
"""
_LWS = """\
# A JSON patch for the leader of a LeaderWorkerSet: the leader alone serves vLLM's page. GPU memory is read on its node
# only; the workers' GPUs hold the same share of the KV cache.
"""
