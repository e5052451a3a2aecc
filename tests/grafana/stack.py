"""The real Prometheus and Alertmanager on loopback, as processes that end with the test."""

import contextlib
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.tools import tool

READY_SECONDS = 30.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def running(command: Sequence[str], ready: str, log: Path) -> Iterator[str]:
    """Run `command` until the block ends; enter it when `ready` answers 200. Yields the base URL."""
    with log.open("wb") as out, subprocess.Popen(list(command), stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            until = time.monotonic() + READY_SECONDS
            while not _answers(ready):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
            yield ready.rsplit("/-/", 1)[0].rsplit("/readyz", 1)[0]
        finally:
            process.terminate()
            process.wait(10)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return False
    except OSError:
        return False


@contextlib.contextmanager
def prometheus(
    home: Path,
    targets: Mapping[str, Sequence[tuple[str, Mapping[str, str]]]],
    rules: Sequence[Path] = (),
    alertmanagers: Sequence[str] = (),
    scrape_seconds: float = 1,
    port: int = 0,
    retention: str = "15d",
) -> Iterator[str]:
    """Prometheus that scrapes `targets` (job → host:port and labels). Yields its URL."""
    config: dict[str, Any] = {
        "global": {"scrape_interval": f"{scrape_seconds:g}s", "evaluation_interval": f"{scrape_seconds:g}s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [host], "labels": dict(labels)} for host, labels in each]}
            for job, each in targets.items()
        ],
    }
    if alertmanagers:
        static = [{"targets": [url.removeprefix("http://") for url in alertmanagers]}]
        config["alerting"] = {"alertmanagers": [{"static_configs": static}]}
    home.mkdir(parents=True, exist_ok=True)
    file = home / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    url = f"http://127.0.0.1:{port or free_port()}"
    command = [
        tool("prometheus", "prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        f"--storage.tsdb.retention.time={retention}",
        "--log.level=warn",
    ]
    with running(command, f"{url}/-/ready", home / "prometheus.log") as base:
        yield base


@contextlib.contextmanager
def alertmanager(home: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """Alertmanager with `config`, alone in its cluster. Yields its URL."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "alertmanager.yml"
    file.write_text(yaml.safe_dump(dict(config), allow_unicode=True))
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        tool("prometheus-alertmanager", "prometheus-alertmanager"),
        f"--config.file={file}",
        f"--storage.path={home / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    with running(command, f"{url}/-/ready", home / "alertmanager.log") as base:
        yield base
