"""The commands of docs/install.md, run: rendering stands in for the cluster, and the rest is real."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest

from tests.deploy import crds
from tests.deploy.tools import OPERATOR_APIS, POLICY_API, ROOT, Helm, documents, kinds, run, tool

PAGE = (ROOT / "docs" / "install.md").read_text()


def _commands() -> Iterator[list[str]]:
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            yield shlex.split(line)


COMMANDS = list(_commands())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the commands read, which `helm dependency build` may write to."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    return tmp_path


@pytest.mark.parametrize("command", [each for each in COMMANDS if each[0] == "helm"], ids=" ".join)
def test_helm_commands_work(command: list[str], checkout: Path) -> None:
    """Each helm command is accepted, and what it would install is valid."""
    words = [str(checkout / word) if word.startswith("deploy/") else word for word in command[1:]]
    if words[:2] == ["dependency", "build"]:
        Helm("4")(*words)
        return
    if words[0] in ("uninstall", "test"):
        # These need a release; that helm knows them and their flags is what can be seen here.
        assert words[0] in Helm("4")(words[0], "--help")
        return
    if "own-chart" in words[2 + words.count("--install")]:
        Helm("4")("dependency", "build", checkout / "deploy" / "examples" / "own-chart")
    rest = [word for word in words[1:] if word not in ("--install", "--create-namespace", "--reuse-values")]
    apis = [flag for api in (POLICY_API, *OPERATOR_APIS) for flag in ("--api-versions", api)]
    manifests = documents(Helm("4")("template", *rest, "--kube-version", "1.37.0", *apis))
    assert manifests
    for manifest in manifests:
        # The operator's kinds have no schema here; test_chart.py checks them.
        if not crds.is_known(manifest):
            kubernetes_validate.validate(manifest, "1.37", strict=True)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each[0] == "kubectl"], ids=" ".join)
def test_kubectl_commands_work(command: list[str], tmp_path: Path) -> None:
    """Each kubectl command is accepted without a cluster, and what it applies is valid."""
    kubectl = tool("4", "kubectl")
    if command[1:3] == ["apply", "-k"]:
        done = run([kubectl, "kustomize", ROOT / command[3]])
        assert done.returncode == 0, done.stderr
        for manifest in documents(done.stdout):
            kubernetes_validate.validate(manifest, "1.37", strict=True)
    elif command[1:3] == ["apply", "-f"]:
        applied = documents((ROOT / command[3]).read_text())
        assert kinds(applied) == ["PodMonitor", "PrometheusRule"]
        assert crds.findings(applied) == []
    elif command[1] == "patch":
        deployment = tmp_path / "deployment.yaml"
        shutil.copy(ROOT / "deploy" / "examples" / "tensor-parallel" / "deployment.yaml", deployment)
        patch = command[command.index("--patch") + 1]
        local: list[str | Path] = ["patch", "--local", "--filename", deployment, "--type", "merge"]
        done = run([kubectl, *local, "--patch", patch, "-oyaml"])
        assert done.returncode == 0, done.stderr
        (patched,) = documents(done.stdout)
        assert patched["spec"]["template"]["metadata"]["labels"]["vllm-headroom/inject"] == "true"
    else:
        done = run([kubectl, *command[1:], "--dry-run=client", "-oyaml"])
        assert done.returncode == 0, done.stderr
        (created,) = documents(done.stdout)
        kubernetes_validate.validate(created, "1.37", strict=True)


def test_no_command_is_left_out() -> None:
    """Every command of the page is of a kind that is run above, but for those that need a Docker engine."""
    assert {command[0] for command in COMMANDS} == {"docker", "helm", "kubectl"}
    assert all(command[1] in ("build", "push") for command in COMMANDS if command[0] == "docker")
    assert (ROOT / "Dockerfile").is_file()


def test_every_annotation_of_the_policy_is_on_the_page() -> None:
    """The page lists exactly the annotations that the policy reads."""
    policy = (ROOT / "deploy" / "manifests" / "injection.yaml").read_text()
    read = set(re.findall(r'"(vllm-headroom/[a-z-]+)" in ', policy))
    rows = "\n".join(line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `vllm-headroom/"))
    assert set(re.findall(r"`(vllm-headroom/[a-z-]+)`", rows)) == read
