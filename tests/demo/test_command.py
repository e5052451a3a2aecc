"""`vllm-headroom demo` as people run it."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import httpx
import pytest

from exporter.cli import main
from exporter.demo.traffic import SCENARIOS

DEMO = (sys.executable, "-m", "exporter", "demo")


def test_it_ends_by_itself_with_a_line_a_second() -> None:
    """Without a terminal it prints where it serves and a line for each second, and ends with 0 after its duration."""
    done = subprocess.run([*DEMO, "--port", "0", "--speed", "10", "--duration", "3"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("burst: ")
    assert sum(line.startswith("t=") for line in lines) >= 2
    assert re.search(r"KV +\d+ %", lines[-1])


def test_its_exporter_serves_while_it_runs() -> None:
    """The exporter's page and the engine's page can be read while the demo runs, and Ctrl-C ends it with 0."""
    demo = subprocess.Popen(
        [*DEMO, "--port", "0", "--scenario", "calm", "--speed", "5"], stdout=subprocess.PIPE, text=True
    )
    assert demo.stdout is not None
    try:
        notes = [demo.stdout.readline() for _ in range(5)]
        exporter, engine = re.findall(r"(http://\S+)/metrics", "".join(notes))
        page = httpx.get(exporter + "/metrics").text
        assert re.search(r'^vllm_headroom_kv_capacity_tokens{.*source="engine"} 41408', page, re.MULTILINE)
        assert re.search(r"^vllm_headroom_kv_used_ratio{", page, re.MULTILINE)
        assert re.search(r'^vllm_headroom_device_memory_bytes{.*kind="used"', page, re.MULTILINE)
        assert httpx.get(exporter + "/readyz").status_code == 200
        assert "vllm:kv_cache_usage_perc" in httpx.get(engine + "/metrics").text
        demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=10) == 0
    finally:
        demo.kill()
        demo.wait()
        demo.stdout.close()


def test_a_terminal_gets_the_view() -> None:
    """On a terminal the live view is shown and refreshed until the end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="100", LINES="40")
        os.execv(sys.executable, [*DEMO, "--port", "0", "--speed", "10", "--duration", "3"])
    text = _until_the_end(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert "vllm-headroom demo: burst, 10 times as fast" in text
    assert "Watch for: running and waiting jump" in text
    assert "llama-3.1-8b" in text


def _until_the_end(terminal: int) -> str:
    shown = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # Linux's way of saying that the other side is closed
                break
            if not part:
                break
            shown += part
    os.close(terminal)
    return shown.decode()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--scenario", "bust"], "--scenario 'bust': must be one of calm"),
        (["--listen", "nowhere"], "LISTEN='nowhere': must be HOST:PORT"),
    ],
)
def test_wrong_use_is_told_in_a_line(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong value ends with 2 and one line that names it."""
    assert main(["demo", *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--speed", "0"], ["--speed", "fast"], ["--duration", "-1"]])
def test_a_number_out_of_range_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers that make no sense are refused with what is allowed."""
    with pytest.raises(SystemExit) as end:
        main(["demo", *arguments])
    assert end.value.code == 2
    assert "must be a number from" in capsys.readouterr().err


def test_help_lists_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` names each scenario with what to watch for."""
    with pytest.raises(SystemExit) as end:
        main(["demo", "--help"])
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for one in SCENARIOS.values():
        assert f"{one.name} {one.happens} Watch for: {one.watch}." in text


def test_without_rich_the_output_is_plain() -> None:
    """On a terminal without rich it says what is missing and prints lines."""
    hidden = "import sys; sys.modules['rich'] = None; import importlib.util as u; f = u.find_spec\n"
    hidden += "u.find_spec = lambda name, *rest: None if name == 'rich' else f(name, *rest)\n"
    hidden += (
        "from exporter.cli import main; sys.exit(main(['demo', '--port', '0', '--speed', '10', '--duration', '2']))"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", hidden])
    text = _until_the_end(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert "pip install 'vllm-headroom[terminal]'" in text
    assert "t= " in text
