"""Prometheus itself: it reads our form of the web config, and scrapes a page that has one."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import yaml

from exporter.errors import SettingsError
from exporter.guard.web_config import read_web_config
from tests.grafana.stack import free_port
from tests.guard.files import AUTHORITY, CLIENTS, TLS, Files, users
from tests.support.daemon import running
from tests.support.expositions import TWO_ENGINES, exposition
from tests.support.pages import PageServer, answer
from tests.support.tools import tool

MUTUAL = TLS + "  client_ca_file: clients.pem\n  client_auth_type: RequireAndVerifyClientCert\n"


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        (TLS, True),
        (TLS + "  min_version: TLS13\n  max_version: TLS13\n", True),
        (MUTUAL + users(alice="a", bob="b"), True),
        (TLS + "http_server_config:\n  http2: false\n", True),
        (users(alice="a"), True),
        (TLS + "  colour: blue\n", False),
        (TLS + "  min_version: TLS14\n", False),
        (TLS + "  client_ca_file: clients.pem\n", False),
        (TLS + "  client_auth_type: Never\n", False),
        ("basic_auth_users:\n  alice: secret\n", False),
        (users(alice="a") + users(bob="b"), False),
        ("tls_server_config: {cert_file: tls.crt}", False),
        ("{", False),
    ],
)
def test_promtool_and_we_agree(tmp_path: Path, text: str, fit: bool) -> None:
    """What promtool accepts of what we serve, we accept; what it refuses, we refuse."""
    file = Files(tmp_path).config(text)
    command = [tool("promtool", "prometheus"), "check", "web-config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode == 0) == fit, done.stderr
    if fit:
        read_web_config(file, "X")
    else:
        with pytest.raises(SettingsError):
            read_web_config(file, "X")


@contextmanager
def prometheus(directory: Path, jobs: list[dict[str, Any]]) -> Iterator[str]:
    """A Prometheus that scrapes every second; its URL."""
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        tool("prometheus", "prometheus"),
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _targets(url: str) -> dict[str, tuple[str, str]]:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/targets?state=active", timeout=5) as answer_:
            active = json.load(answer_)["data"]["activeTargets"]
    except OSError:
        return {}
    return {each["labels"]["job"]: (each["health"], each["lastError"]) for each in active}


def test_prometheus_scrapes_a_protected_page(tmp_path: Path) -> None:
    """By client certificate, and password or token, Prometheus gets in; without one of them it does not."""
    files = Files(tmp_path)
    files.token.write_text("a-token")
    AUTHORITY.cert_pem.write_to_path(tmp_path / "authority.pem")
    client = CLIENTS.issue_cert("prometheus")
    client.cert_chain_pems[0].write_to_path(tmp_path / "client.crt")
    client.private_key_pem.write_to_path(tmp_path / "client.key")
    trust = {"ca_file": str(tmp_path / "authority.pem")}
    known = trust | {"cert_file": str(tmp_path / "client.crt"), "key_file": str(tmp_path / "client.key")}
    password = {"basic_auth": {"username": "prometheus", "password": "secret"}}
    token = {"authorization": {"credentials_file": str(files.token)}}
    wanted = {
        "password": ({"tls_config": known} | password, ""),
        "token": ({"tls_config": known} | token, ""),
        "wrong": ({"tls_config": known, "authorization": {"credentials": "guessed"}}, "401 Unauthorized"),
        "nothing": ({"tls_config": known}, "401 Unauthorized"),
        "stranger": ({"tls_config": trust} | password, "403 Forbidden"),
    }
    config = files.config(MUTUAL + users(prometheus="secret"))
    with (
        PageServer(answer(exposition(TWO_ENGINES))) as vllm,
        running(vllm.url, web_config_file=str(config), page_bearer_token_file=str(files.token)) as one,
    ):
        one.tick(1)
        place = one.daemon.url.removeprefix("https://")
        jobs = [
            {"job_name": name, "scheme": "https", "static_configs": [{"targets": [place]}], **given}
            for name, (given, _) in wanted.items()
        ]
        with prometheus(tmp_path, jobs) as url:
            until = monotonic() + 60
            while len(found := _targets(url)) < len(jobs) or any(health == "unknown" for health, _ in found.values()):
                assert monotonic() < until, found
                sleep(0.2)
    for name, (_, fault) in wanted.items():
        health, error = found[name]
        assert health == ("down" if fault else "up"), (name, error)
        assert fault in error
