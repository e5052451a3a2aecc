import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.routes import Routes
from exporter.server import HttpServer
from exporter.top.command import main
from tests.web.scenes import SCENES


@contextmanager
def exporting(name: str) -> Iterator[str]:
    made = SCENES[name]()
    routes = Routes(lambda: made.snapshot, made.history, lambda: made.snapshot.time + 0.3, 8.0)
    with HttpServer("127.0.0.1", 0, routes) as server:
        yield server.url


@pytest.mark.parametrize(
    ("name", "code"),
    [("ok", 0), ("watch", 0), ("asleep", 0), ("unknown", 0), ("predicted", 1), ("exhausted", 1), ("stalled", 1)],
)
def test_a_report_tells_the_state_by_its_exit_code(name: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe one report is printed; the exit code is 1 where someone should do something."""
    with exporting(name) as url:
        assert main([url]) == code
    told = capsys.readouterr().out
    assert told.startswith(f"{url.removeprefix('http://')}: {name}: ")
    assert "\x1b" not in told


def test_a_report_tells_the_whole_story(capsys: pytest.CaptureFixture[str]) -> None:
    """The report has what is left, the load, the forecast, the levers, the GPU and the drawing."""
    with exporting("predicted") as url:
        main([url.removeprefix("http://")])
    told = capsys.readouterr().out
    for part in (
        "KV cache is predicted to run out in about 40 s; driven by a burst of requests.",
        "22,288 tokens · 24 requests · 2.7 GiB; 83 % of 131,072 tokens in use, at most 88 % in 60 s",
        "44 running, 6 waiting (6 for room in the engine)",
        "12 % in 15 s, 46 % in 30 s, 87 % in 60 s, 95 % in 2 min",
        "2.0 × the capacity: --kv-cache-dtype fp8 (a restart; check the answers' quality with the smaller cache)",
        "7 of 10 alarms came true, 7 of 8 exhaustions foreseen",
        "GPU 0: weights 15.0 GiB, KV used 13.3 GiB",
        "−15 min",
    ):
        assert part in told


def test_several_servers_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Each server has its block; one that does not answer is said to, and makes the exit code 1."""
    with exporting("ok") as first, exporting("two-engines") as second:
        assert main([first, second, "127.0.0.1:1"]) == 1
    told = capsys.readouterr().out
    assert f"engine 1 @ {second.removeprefix('http://')}" in told
    assert "127.0.0.1:1: http://127.0.0.1:1/api/v1/status?window=900 refused the connection" in told


def test_reports_are_repeated_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """--count sets how many reports are printed."""
    with exporting("ok") as url:
        assert main([url, "--count", "2", "--interval", "0.1"]) == 0
    assert capsys.readouterr().out.count("KV cache is not about to run out") == 2


def test_hostile_names_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in a model's name never reach the terminal."""
    with exporting("control") as url:
        main([url])
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "\x07" not in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ftp://host"], "VLLM_HEADROOM_VLLM_URL='ftp://host': must be http"),
        (["--interval", "0"], "'0': must be a number of seconds from 0.1 to 60"),
        (["--window", "7"], "argument --window: invalid choice: "),
        (["--count", "-1"], "--count -1: must be 0 (without end) or a number of reports"),
        (["--api-key-file", "/nowhere"], "VLLM_HEADROOM_API_KEY_FILE='/nowhere': must be an existing file"),
    ],
)
def test_wrong_use_is_one_clear_line(arguments: list[str], said: str) -> None:
    """A wrong argument ends with exit code 2 and says what is allowed."""
    done = subprocess.run(
        [sys.executable, "-m", "exporter", "top", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_rich_there_is_still_a_report(tmp_path: Path) -> None:
    """On a terminal without rich the report comes plain, and how to get the live view is told."""
    (tmp_path / "rich.py").write_text("raise ImportError")
    program = (
        "import importlib.util, sys; find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'rich' else find(name, *a)\n"
        "sys.stdout.isatty = lambda: True\n"
        "from exporter.top.command import main; sys.exit(main(sys.argv[1:]))"
    )
    with exporting("ok") as url:
        done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "KV cache is not about to run out" in done.stdout
    assert "pip install 'vllm-headroom[terminal]'" in done.stderr
