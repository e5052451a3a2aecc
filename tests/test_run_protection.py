"""The process with a protected page: how it starts, what it refuses, what SIGHUP does."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from exporter.cli import main
from tests.guard.files import AUTHORITY, TLS, Files, replace, trusting, users
from tests.support.daemon import running

COMMAND = [sys.executable, "-m", "exporter"]
NOBODY = ("--vllm-url", "http://127.0.0.1:1", "--gpus", "none", "--host", "none")


class Process:
    """A daemon that serves, and the lines of its log."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.url = self.until(r"serves (https?://\S+)")[1]

    @property
    def log(self) -> str:
        return self._log.read_text()

    def until(self, pattern: str, seconds: float = 20.0) -> re.Match[str]:
        """Wait for a line."""
        until = time.monotonic() + seconds
        while (found := re.search(pattern, self.log)) is None:
            assert self._process.poll() is None, self.log
            assert time.monotonic() < until, self.log
            time.sleep(0.02)
        return found

    def hang_up(self) -> None:
        self._process.send_signal(signal.SIGHUP)

    def status(self, path: str = "/metrics", **request: object) -> int:
        with httpx.Client(verify=trusting(), trust_env=False) as client:
            return client.get(f"{self.url}{path}", **request).status_code  # type: ignore[arg-type]


@contextmanager
def daemon(directory: Path, *flags: str) -> Iterator[Process]:
    log = directory / "log"
    listen = () if "--listen" in flags else ("--listen", "127.0.0.1:0")
    with log.open("w") as stream:
        process = subprocess.Popen([*COMMAND, "run", *NOBODY, *listen, *flags], stderr=stream, text=True)
    try:
        yield Process(process, log)
        process.terminate()
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_sighup_reloads_certificate_users_and_token(files: Files) -> None:
    """After SIGHUP the new files hold; a bad one keeps the old and costs one line; the process goes on."""
    files.token.write_text("first")
    config = files.config(TLS + users(alice="one"))
    flags = ("--web-config-file", str(config), "--page-bearer-token-file", str(files.token))
    with daemon(files.directory, *flags) as process:
        assert process.url.startswith("https://")
        assert process.status(auth=("alice", "one")) == 200
        files.renew()
        replace(files.token, b"second")
        files.config(TLS + users(alice="two"))
        process.hang_up()
        process.until("was read anew: TLS, passwords, a bearer token")
        assert process.status(auth=("alice", "one")) == process.status(headers={"Authorization": "Bearer first"}) == 401
        assert (
            process.status(auth=("alice", "two")) == process.status(headers={"Authorization": "Bearer second"}) == 200
        )
        files.key.write_text("not a key")
        process.hang_up()
        process.until("stays as it was: .*tls.key': must be PEM files")
        assert process.status(auth=("alice", "two")) == 200
        assert "Traceback" not in process.log
        for secret in ("one", "two", "first", "second", "$2y$", "not a key"):
            assert not re.search(rf"\b{re.escape(secret)}\b", process.log)


def test_sighup_without_files_ends_nothing(tmp_path: Path) -> None:
    """A daemon whose page is open says that there is nothing to read, and goes on."""
    with daemon(tmp_path) as process:
        for _ in range(3):
            process.hang_up()
        process.until("there is nothing to read")
        assert process.status("/healthz") == 200


def test_a_token_without_tls_is_warned_of_where_others_can_listen(files: Files) -> None:
    """On loopback a token alone is enough; on an address for others the log says that it travels unencrypted."""
    files.token.write_text("token")
    flag = ("--page-bearer-token-file", str(files.token))
    with daemon(files.directory, *flag) as process:
        process.until("is protected by: no TLS, a bearer token")
        assert "unencrypted" not in process.log
    with daemon(files.directory, *flag, "--listen", "0.0.0.0:0") as process:
        process.until("unencrypted: PAGE_TLS_CERT_FILE serves HTTPS")


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert main(["run", *NOBODY, "--check-config", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_wrong_files_are_wrong_use(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    """Files that are not fit are told by --check-config with exit code 2 and one line, no traceback."""
    config = files.config("tls_server_config: {cert_file: tls.crt, key_file: none, min_version: TLS11}")
    assert "tls_server_config.min_version: is not served" in refused(capsys, "--web-config-file", str(config))
    assert "PAGE_TLS_KEY_FILE: must be given where" in refused(capsys, "--page-tls-cert-file", str(files.cert))
    gone = refused(capsys, "--web-config-file", str(files.directory / "gone"))
    assert "VLLM_HEADROOM_WEB_CONFIG_FILE=" in gone
    assert "must be an existing file" in gone


def test_the_daemon_does_not_start_unprotected(files: Files) -> None:
    """Where the protection that was asked for cannot be had, the process ends with exit code 2 and serves nothing."""
    flags = ("--page-tls-cert-file", str(files.cert), "--page-tls-key-file", str(files.ca))
    done = subprocess.run([*COMMAND, "run", *NOBODY, *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("vllm-headroom run: VLLM_HEADROOM_PAGE_TLS_CERT_FILE=")


def test_top_reads_a_protected_page(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    """The terminal view gets in by CA and token, and without them says what is missing."""
    files.token.write_text("token")
    AUTHORITY.cert_pem.write_to_path(files.directory / "authority.pem")
    token = ("--page-bearer-token-file", str(files.token))
    trust = ("--tls-ca-file", str(files.directory / "authority.pem"))
    with running(
        "http://127.0.0.1:1",
        page_tls_cert_file=str(files.cert),
        page_tls_key_file=str(files.key),
        page_bearer_token_file=str(files.token),
    ) as one:
        one.tick()

        def top(*flags: str) -> str:
            main(["top", one.daemon.url, *flags])
            return capsys.readouterr().out

        for trusted in (trust, ("--tls-skip-verify",)):
            assert "http://127.0.0.1:1/metrics refused the connection" in top(*trusted, *token)
        assert "answers 401" in top(*trust)
        assert "no TLS connection that can be trusted" in top(*token)
