"""The real tools the deployment is tested with, and what they print."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "deploy" / "helm" / "vllm-headroom"
VERSIONS = ("3", "4")
"""Major versions of helm the chart must work with."""

POLICY_API = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
OPERATOR_APIS = tuple(f"monitoring.coreos.com/v1/{kind}" for kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule"))

Manifest = dict[str, Any]


@cache
def tool(major: str, name: str = "helm") -> Path:
    """The path of a tool, fetched where it is missing; that it cannot be had is a failure."""
    command = [sys.executable, str(ROOT / "scripts" / "get-helm"), major, name]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())


def run(command: Sequence[str | Path], *, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command and give back what it said, whatever its exit code."""
    return subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True, input=stdin)


class RefusedError(Exception):
    """The tool refused its input; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Helm:
    """One version of helm."""

    major: str

    def __call__(self, *words: str | Path) -> str:
        """What it prints on standard output; raises `RefusedError` with what it said otherwise."""
        done = run([tool(self.major), *words])
        if done.returncode:
            raise RefusedError(done.stderr + done.stdout)
        return done.stdout

    def template(
        self,
        *files: Path,
        values: Mapping[str, Any] | None = None,
        chart: Path = CHART,
        apis: Sequence[str] = (),
        kubernetes: str = "1.37.0",
        release: str = "headroom",
    ) -> list[Manifest]:
        """The manifests of the chart with these values files and values."""
        words: list[str | Path] = ["template", release, chart, "--namespace", "observability"]
        words += ["--kube-version", kubernetes]
        for file in files:
            words += ["--values", file]
        for api in apis:
            words += ["--api-versions", api]
        if values is None:
            return documents(self(*words))
        done = run([tool(self.major), *words, "--values", "-"], stdin=yaml.safe_dump(dict(values)))
        if done.returncode:
            raise RefusedError(done.stderr + done.stdout)
        return documents(done.stdout)


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: `=` is a text, though YAML 1.1 has other plans for it."""


def _text(_: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    return str(node.value)


_Loader.add_constructor("tag:yaml.org,2002:value", _text)


def documents(text: str) -> list[Manifest]:
    """The documents of a YAML stream that aren't empty."""
    return [document for document in yaml.load_all(text, _Loader) if document]


def of_kind(manifests: Sequence[Manifest], kind: str) -> Manifest:
    """The only manifest of a kind."""
    (found,) = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def kinds(manifests: Sequence[Manifest]) -> list[str]:
    """The kinds of the manifests, sorted."""
    return sorted(manifest["kind"] for manifest in manifests)


def dump(value: Any) -> str:
    """YAML as the golden files have it."""
    return yaml.safe_dump(value, sort_keys=True, width=120, allow_unicode=True)
