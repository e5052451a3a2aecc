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
from tests.guard.files import CLIENTS, Files, trusting, users

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
        if found := re.search(r"https?://127\.0\.0\.1:(?!8000)\d+", line):
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


WEB_CONFIG = """\
tls_server_config:
  cert_file: ../tls/tls.crt
  key_file: ../tls/tls.key
  client_ca_file: ca.crt
  client_auth_type: RequireAndVerifyClientCert
"""


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """The Secrets of the values files in ci/, mounted below this directory as the chart mounts them."""
    for name in ("tls", "token", "web"):
        (tmp_path / name).mkdir()
    Files(tmp_path / "tls")
    (tmp_path / "token" / "token").write_text("a-token")
    (tmp_path / "web" / "web-config.yml").write_text(WEB_CONFIG + users(prometheus="secret"))
    CLIENTS.cert_pem.write_to_path(tmp_path / "web" / "ca.crt")
    return tmp_path


def _mounted(container: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The container with its mounts in another place."""
    text = yaml.safe_dump(container).replace("/etc/vllm-headroom/", f"{directory}/")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def _probed(url: str, probe: dict[str, Any]) -> int:
    """What a kubelet gets: it trusts any certificate and has none."""
    asked = probe["httpGet"]
    assert url.startswith(asked.get("scheme", "HTTP").lower() + ":")
    return httpx.get(url + asked["path"], verify=False).status_code


def test_a_protected_sidecar_lets_in_the_probe_helm_test_and_prometheus(secrets: Path) -> None:
    """With the certificate and token of its Secrets, the sidecar asks everybody else for the token."""
    pod = yaml.safe_load((GOLDEN / "everything" / "01-plain.yaml").read_text())
    container = _mounted(_sidecar(pod), secrets)
    unwanted = ("API_KEY_FILE", "TLS_CA_FILE", "POD_RESOURCES_SOCKET", "CGROUP_DIR")
    container["env"] = [
        each for each in container["env"] if each["name"] not in [f"VLLM_HEADROOM_{name}" for name in unwanted]
    ]
    values = CHART / "ci" / "protected-values.yaml"
    manifests = Helm("4").template(values, apis=[POLICY_API])
    endpoint = of_kind(manifests, "PodMonitor")["spec"]["podMetricsEndpoints"][0]
    assert (endpoint["scheme"], endpoint["authorization"]["credentials"]["key"]) == ("https", "token")
    test = of_kind(manifests, "Pod")["spec"]["containers"][0]
    with _running(container) as url:
        assert _probed(url, container["livenessProbe"]) == 200
        with httpx.Client(verify=trusting(), base_url=url) as prometheus:
            assert prometheus.get("/metrics").status_code == 401
            token = (secrets / "token" / endpoint["authorization"]["credentials"]["key"]).read_text()
            assert prometheus.get("/metrics", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        done = run([sys.executable, *test["command"][1:], re.sub(r"https://[^/]+/", f"{url}/", test["args"][0])])
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_web_config_from_a_secret_protects_the_standalone_page(secrets: Path) -> None:
    """Client certificate and password are asked for, and neither of a probe."""
    manifests = Helm("4").template(CHART / "ci" / "web-config-values.yaml", apis=[POLICY_API])
    container = _mounted(of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0], secrets)
    with _running(container) as url:
        assert _probed(url, container["livenessProbe"]) == 200
        assert _probed(url, container["readinessProbe"]) in (200, 503)
        assert httpx.get(f"{url}/metrics", verify=trusting(), auth=("prometheus", "secret")).status_code == 403
        with httpx.Client(verify=trusting(CLIENTS.issue_cert("prometheus")), base_url=url) as prometheus:
            assert prometheus.get("/metrics").status_code == 401
            assert prometheus.get("/metrics", auth=("prometheus", "secret")).status_code == 200
