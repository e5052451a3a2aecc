"""The daemon as a process: how it starts, what it refuses, how it ends."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

from tests.support import pages

PAGE = (Path(__file__).parent / "data" / "expositions" / "vllm-0.32-one-engine-full.prom").read_text()
COMMAND = [sys.executable, "-m", "exporter"]


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, env=os.environ | environment
    )


@contextmanager
def daemon(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, once it serves, and its URL."""
    arguments = [*COMMAND, "run", "--listen", "127.0.0.1:0", "--gpus", "none", *flags]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield process, _url(process.stderr)
    finally:
        process.kill()
        process.communicate()


def _url(log: IO[str]) -> str:
    for line in log:
        found = re.search(r"serves (http://\S+)", line)
        if found:
            return found[1]
    raise AssertionError("the daemon ended before it served")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("behaviour", ["answers", "hangs"])
def test_a_signal_ends_it_at_once(number: signal.Signals, behaviour: str) -> None:
    """SIGTERM and SIGINT end the process with exit code 0, also while a reading hangs."""
    server_does = pages.answer(PAGE) if behaviour == "answers" else pages.silence()
    with pages.PageServer(server_does) as server, daemon("--vllm-url", server.url) as (process, url):
        until = time.monotonic() + 20
        while not server.requests and time.monotonic() < until:
            time.sleep(0.05)
        assert httpx.get(f"{url}/healthz").status_code == 200
        process.send_signal(number)
        assert process.wait(timeout=10) == 0


def test_it_serves_without_vllm_gpu_and_model() -> None:
    """With nothing to watch the process lives, is ready after its first tick and says what is missing."""
    with daemon("--vllm-url", "http://127.0.0.1:1") as (_, url):
        until = time.monotonic() + 20
        while httpx.get(f"{url}/readyz").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert 'vllm_headroom_source_up{source="vllm"} 0.0' in httpx.get(f"{url}/metrics").text


def test_the_running_process_does_not_hold_what_read_its_settings() -> None:
    """What checks the settings is never needed again, and is not mapped into the memory of the daemon."""
    with daemon("--vllm-url", "http://127.0.0.1:1") as (process, _):
        mapped = Path(f"/proc/{process.pid}/maps").read_text()
        assert "numpy" in mapped
        assert "pydantic" not in mapped


def test_a_second_instance_on_the_port_is_a_clear_error() -> None:
    """The second process ends with exit code 2 and one line that names the address and the way out."""
    with daemon("--vllm-url", "http://127.0.0.1:1") as (_, url):
        address = url.removeprefix("http://")
        done = call("run", "--listen", address, "--gpus", "none")
        assert done.returncode == 2
        (line,) = [line for line in done.stderr.splitlines() if "cannot listen" in line]
        assert address in line
        assert "--listen" in line
        assert "Traceback" not in done.stderr


def test_paths_and_forms() -> None:
    """Text, OpenMetrics and gzip are served as asked; another path is 404; HEAD has no body."""
    with pages.PageServer(pages.answer(PAGE)) as server, daemon("--vllm-url", server.url) as (_, url):
        while httpx.get(f"{url}/readyz").status_code != 200:
            time.sleep(0.05)
        plain = httpx.get(f"{url}/metrics", headers={"Accept-Encoding": "identity"})
        assert plain.headers["content-type"].startswith("text/plain; version=")
        assert "content-encoding" not in plain.headers
        zipped = httpx.get(f"{url}/metrics", headers={"Accept-Encoding": "gzip"})
        assert zipped.headers["content-encoding"] == "gzip"
        assert "vllm_headroom_build_info" in zipped.text
        unwanted = httpx.get(f"{url}/metrics", headers={"Accept-Encoding": "gzip;q=0"})
        assert "content-encoding" not in unwanted.headers
        openmetrics = httpx.get(f"{url}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
        assert openmetrics.text.endswith("# EOF\n")
        assert httpx.get(f"{url}/metrics/").status_code == 404
        assert httpx.get(f"{url}/etc/passwd").status_code == 404
        head = httpx.head(f"{url}/metrics")
        assert (head.status_code, head.content) == (200, b"")


def test_check_config_only_checks() -> None:
    """Good settings are printed with exit code 0; bad ones give a line each with exit code 2; nothing is served."""
    good = call("run", "--check-config", "--poll-interval-seconds", "2")
    assert (good.returncode, good.stderr) == (0, "")
    assert "poll_interval_seconds=2.0" in good.stdout
    bad = call("run", "--check-config", VLLM_HEADROOM_LISTEN="nowhere", VLLM_HEADROOM_SEED="x")
    assert bad.returncode == 2
    assert len(bad.stderr.splitlines()) == 2
    assert all("VLLM_HEADROOM_" in line for line in bad.stderr.splitlines())


def test_the_command_line_explains_itself() -> None:
    """No command or an unknown one shows the commands with exit code 2; --help and --version are good use."""
    assert call().returncode == 2
    unknown = call("watch")
    assert unknown.returncode == 2
    assert "unknown command 'watch'" in unknown.stderr
    helped = call("--help")
    assert helped.returncode == 0
    assert "plan" in helped.stdout
    assert re.fullmatch(r"vllm-headroom \d+\.\d+\.\d+\n", call("--version").stdout)
    assert call("run", "--help").returncode == 0
    assert call("run", "--no-such-flag").returncode == 2


def test_a_daemon_that_could_not_begin_leaves_signals_as_they_were() -> None:
    """What the same process begins after it can be told to end."""
    program = """
import signal
from exporter.cli import main
before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
code = main(["run", "--listen", "192.0.2.1:9488", "--gpus", "none", "--host", "none"])
print(code, signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "2 True\n", done.stderr
