"""The container that the chart makes, run: its environment, its probes' paths, and the script of `helm test`."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pytest
import yaml

from exporter.settings import load, unknown_variables
from tests.deploy.tools import CHART, POLICY_API, ROOT, Helm, Manifest, of_kind, run

GOLDEN = Path(__file__).parent / "golden" / "admission"
SIDECARS = sorted(GOLDEN.glob("*/*.yaml"))


def _sidecar(pod: Manifest) -> dict[str, Any]:
    containers: list[dict[str, Any]] = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    (found,) = [each for each in containers if each["name"] == "vllm-headroom"]
    return found


def _environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


@pytest.mark.parametrize("file", SIDECARS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_every_variable_is_one_the_exporter_knows(file: Path) -> None:
    """Nothing in the sidecar's environment is misspelt."""
    assert list(unknown_variables(_environment(_sidecar(yaml.safe_load(file.read_text()))))) == []


def test_the_sidecars_environment_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter accepts the environment of the plain sidecar, and watches the pod's own vLLM."""
    pod = yaml.safe_load((GOLDEN / "default" / "01-plain.yaml").read_text())
    for name, value in _environment(_sidecar(pod)).items():
        monkeypatch.setenv(name, value)
    settings = load({})
    assert settings.vllm_url == ("http://127.0.0.1:8000",)
    assert settings.listen == "0.0.0.0:9488"
    assert settings.gpus == ("auto",)


@contextmanager
def _running(container: dict[str, Any]) -> Iterator[str]:
    """The exporter, started with a container's arguments and environment; its URL."""
    environment = {"PATH": os.environ["PATH"], **_environment(container), "VLLM_HEADROOM_LISTEN": "127.0.0.1:0"}
    command = [sys.executable, "-m", "exporter", *container["args"]]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            yield _url(process.stderr)
        finally:
            process.terminate()
            process.communicate()


def _url(log: Any) -> str:
    for line in log:
        if found := re.search(r"http://127\.0\.0\.1:(?!8000)\d+", line):
            return found[0]
    raise AssertionError("the exporter ended without saying where it listens")


def test_probes_and_helm_test_find_what_they_ask_for() -> None:
    """With vLLM down, the started container still answers its probes, and helm's test passes against it."""
    manifests = Helm("4").template(CHART / "ci" / "standalone-values.yaml", apis=[POLICY_API])
    container = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [each for each in container["env"] if each["name"] != "VLLM_HEADROOM_API_KEY_FILE"]
    test = of_kind(manifests, "Pod")["spec"]["containers"][0]
    with _running(container) as url:
        assert httpx.get(url + container["livenessProbe"]["httpGet"]["path"]).status_code == 200
        until = monotonic() + 20
        while httpx.get(url + container["readinessProbe"]["httpGet"]["path"]).status_code != 200:
            assert monotonic() < until, "never ready"
            sleep(0.1)
        script = re.sub(r"http://[^/]+/", f"{url}/", test["args"][0])
        done = run([sys.executable, *test["command"][1:], script])
        assert done.returncode == 0, done.stdout + done.stderr
