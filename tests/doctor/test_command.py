"""The command as a user runs it: against a real page, with and without a driver, in a pipe and on a terminal."""

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from exporter.doctor import main
from exporter.doctor.finding import Finding, as_json, as_table
from exporter.errors import SettingsError
from tests.nvml_stub.stub import build
from tests.support.expositions import TWO_ENGINES, exposition
from tests.support.pages import PageServer, answer

FINDINGS = [
    Finding("vLLM", "ok", "up", "its page"),
    Finding("vLLM", "missing", "a thing", "", "something", "the manifest"),
    Finding("GPU", "fault", "lost"),
]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting and no model from this machine."""
    for name in [name for name in os.environ if name.startswith(("VLLM_HEADROOM_", "POD_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path))


def test_a_table_names_each_part_once_and_wraps() -> None:
    """Cost and change stand below what they belong to; the verdict is last."""
    assert as_table(FINDINGS, colour=False).splitlines() == [
        "vLLM      ok        up (by its page)",
        "          missing   a thing",
        "                    costs: something",
        "                    change: the manifest",
        "",
        "GPU       fault     lost",
        "",
        "1 fault found",
    ]
    long = as_table([Finding("vLLM", "ok", "word " * 60)], colour=False, width=80)
    assert max(map(len, long.splitlines())) <= 80


def test_json_has_every_field_and_the_verdict() -> None:
    """What a program reads is what a person reads."""
    told = json.loads(as_json(FINDINGS))
    assert told["fault"] is True
    assert told["findings"][1] == {
        "part": "vLLM",
        "level": "missing",
        "seen": "a thing",
        "rule": "",
        "cost": "something",
        "change": "the manifest",
    }


@pytest.mark.usefixtures("alone")
def test_a_good_page_without_a_gpu_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """Both engines with their capacity; what is missing is named with its cost; exit code 0."""
    with PageServer(answer(exposition(TWO_ENGINES))) as server:
        code = main(["--vllm-url", server.url, "--gpus", "none"])
    shown = capsys.readouterr().out
    assert code == 0, shown
    assert "2 engines" in shown
    assert shown.count("148,336 tokens of KV cache (by kv_cache_size_tokens on the") == 2
    assert "no arithmetic of its KV" in shown
    assert "\x1b" not in shown
    assert shown.endswith("no fault found\n")


@pytest.mark.usefixtures("alone")
def test_a_server_that_is_down_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and the setting to look at."""
    with PageServer(answer("")) as server:
        url = server.url
    assert main(["--vllm-url", url, "--json", "--gpus", "none", "--host", "none"]) == 1
    told = json.loads(capsys.readouterr().out)
    fault = next(finding for finding in told["findings"] if finding["level"] == "fault")
    assert fault["part"] == "vLLM"
    assert "VLLM_HEADROOM_VLLM_URL" in fault["change"]


@pytest.mark.usefixtures("alone")
def test_a_found_model_is_shown_with_where_it_came_from(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A configured config.json is named with its type."""
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama", "vocab_size": 128256}')
    with PageServer(answer(exposition(TWO_ENGINES))) as server:
        main(["--vllm-url", server.url, "--gpus", "none", "--model-config", str(config)])
    assert f"{config}: model_type llama (by configured)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("alone")
def test_a_misspelt_variable_is_pointed_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting that means nothing is a warning."""
    monkeypatch.setenv("VLLM_HEADROOM_GPU", "0")
    with PageServer(answer(exposition(TWO_ENGINES))) as server:
        assert main(["--vllm-url", server.url, "--gpus", "none"]) == 0
    assert "VLLM_HEADROOM_GPU is set but means nothing here" in capsys.readouterr().out


@pytest.mark.usefixtures("alone")
def test_a_wrong_setting_is_wrong_use() -> None:
    """It is told as every command tells it."""
    with pytest.raises(SettingsError, match="VLLM_HEADROOM_VLLM_URL"):
        main(["--vllm-url", "ftp://x"])


@pytest.mark.usefixtures("alone")
def test_a_real_driver_library_is_examined(tmp_path: Path) -> None:
    """With the stub in the library path pynvml is loaded, and driver and card are shown."""
    build(tmp_path, "WITH_CARD")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    command = [sys.executable, "-m", "exporter", "doctor", "--json", "--vllm-url", "http://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    told = json.loads(done.stdout)
    assert done.returncode == 1, "the page is not there"
    seen = [finding["seen"] for finding in told["findings"] if finding["part"] == "GPU"]
    assert seen[0] == "NVML works, driver 580.65.06"
    assert any(
        "GPU 0 GPU-00000000 NVIDIA Stub: 70.0 GiB used, 1.0 GiB reserved, 9.0 GiB free of 80.0 GiB" in s for s in seen
    )


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals(variables: dict[str, str], coloured: bool) -> None:
    """On a terminal the levels are coloured, unless NO_COLOR is set."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | variables
    command = [sys.executable, "-m", "exporter", "doctor", "--vllm-url", "http://127.0.0.1:1", "--gpus", "none"]
    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # how a terminal says that the other side has gone
            while part := os.read(ours, 65536):
                shown += part
        process.wait(60)
    os.close(ours)
    assert (b"\x1b[31;1mfault" in shown) is coloured
