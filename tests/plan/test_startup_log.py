"""A start-up log of any version is read for its figures, and its difference from the plan is explained."""

import json
from pathlib import Path

import pytest

from exporter.plan import main
from exporter.plan.startup_log import read_log
from tests.kv.truth import config
from tests.support.startup_logs import NEGATIVE, REFUSED, USAGE, V0, V1_ONE_LINE, V1_TWO_LINES

GIB = 2**30


def test_two_lines_and_duplicates_of_ranks() -> None:
    """Capacity and concurrency on lines of their own, repeated by each rank; the smallest rank decides."""
    log = read_log(V1_TWO_LINES.splitlines())
    assert log.version == (0, 10)
    assert log.model == "Qwen/Qwen2-7B-Instruct"
    assert (log.figure("tokens"), log.figure("concurrency"), log.figure("length")) == (412944, 25.2, 16384)
    assert log.bytes_of("available") == round(11.01 * GIB)
    assert log.available_per_rank == (round(11.03 * GIB), round(11.01 * GIB))
    assert log.bytes_of("weights") == round(7.1217 * GIB)
    assert log.bytes_of("graphs") == round(0.65 * GIB)
    assert log.figure("tp") == 2


def test_one_line() -> None:
    """Since 0.3x capacity and concurrency share a line."""
    log = read_log(V1_ONE_LINE.splitlines())
    assert (log.figure("tokens"), log.figure("concurrency"), log.figure("length")) == (131072, 16, 8192)


def test_v0_lines() -> None:
    """The profile of V0 is one sentence, its capacity is in blocks."""
    log = read_log(V0.splitlines())
    assert log.bytes_of("total") == round(23.58 * GIB)
    assert log.bytes_of("activations") == round(2.07 * GIB)
    assert log.bytes_of("non_torch") == round(0.35 * GIB)
    assert log.bytes_of("available") == round(3.81 * GIB)
    assert log.figure("blocks") == 1952


def test_the_summary_of_actual_usage() -> None:
    """Every term of the budget stands on one line."""
    log = read_log([USAGE])
    figures = [log.bytes_of(name) for name in ("total", "weights", "activations", "non_torch", "graphs")]
    assert figures == [round(value * GIB) for value in (44.42, 27.72, 1.4, 0.21, 3.45)]


@pytest.mark.parametrize(("text", "said"), [(REFUSED, "short by 0.75 GiB"), (NEGATIVE, "short by 1.05 GiB")])
def test_a_refused_start_exits_with_1(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that ends in a refusal is bad news, with the shortfall."""
    path = tmp_path / "vllm.log"
    path.write_text(text, encoding="utf-8")
    assert main(["--from-log", str(path)]) == 1
    assert said in capsys.readouterr().out


def test_the_length_that_would_fit_is_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine's own estimate is passed on."""
    path = tmp_path / "vllm.log"
    path.write_text(REFUSED, encoding="utf-8")
    main(["--from-log", str(path), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert not answer["started"]
    assert any("190,272 tokens would fit" in line for line in answer["explanations"])


def test_the_log_is_compared_with_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the model's config, tokens and weights of log and plan stand side by side."""
    path, model = tmp_path / "vllm.log", tmp_path / "config.json"
    path.write_text(V1_ONE_LINE, encoding="utf-8")
    model.write_text(json.dumps(config("llama-3.1-8b")), encoding="utf-8")
    assert main(["--from-log", str(path), "--model-config", str(model)]) == 0
    text = capsys.readouterr().out
    assert "131,072 tokens logged, 131,072 by plan from the same bytes (+0.0%)" in text


def test_another_models_config_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A difference beyond two percent names its likely cause."""
    path, model = tmp_path / "vllm.log", tmp_path / "config.json"
    path.write_text(V1_ONE_LINE.replace("131,072", "126,972"), encoding="utf-8")
    model.write_text(json.dumps(config("llama-3.1-8b")), encoding="utf-8")
    main(["--from-log", str(path), "--model-config", str(model)])
    assert "a draft model shares the pool" in capsys.readouterr().out


def test_a_suspect_graph_estimate_is_not_believed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An estimate above a quarter of the card is called suspect, with the way around it."""
    path = tmp_path / "vllm.log"
    text = "Estimated CUDA graph memory: 118.65 GiB total\nFree memory on device (270.0/276.62 GiB) on startup.\n"
    path.write_text(text, encoding="utf-8")
    main(["--from-log", str(path)])
    assert "suspect" in capsys.readouterr().out


def test_preemption_warnings_are_counted() -> None:
    """Each line that tells of a preemption counts once."""
    warning = (
        "WARNING Sequence group 0 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache"
    )
    assert read_log([warning, "INFO nothing", warning]).preemption_warnings == 2


@pytest.mark.parametrize("content", ["", "hello\nworld\n", "\x00\xff"])
def test_what_is_no_log_exits_with_2(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that says nothing of memory is refused in one line."""
    path = tmp_path / "vllm.log"
    path.write_text(content, encoding="utf-8")
    assert main(["--from-log", str(path)]) == 2
    assert main(["--from-log", str(tmp_path / "missing.log")]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_the_model_that_the_log_names_is_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the config of the logged model is in the cache on disk, the comparison needs no flag."""
    snapshot = tmp_path / "hub" / "models--org--llama" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(config("llama-3.1-8b")), encoding="utf-8")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    path = tmp_path / "vllm.log"
    path.write_text(V1_ONE_LINE.replace("model='m'", "model='org/llama'"), encoding="utf-8")
    assert main(["--from-log", str(path)]) == 0
    assert "131,072 by plan" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("graphs", "share", "said"),
    [
        ("1.15", "0.93", "the next start: CUDA graphs may not fit"),
        ("1.15", "0.97", "0.96 or less is safer on a card of this size"),
        ("0.50", "0.93", ""),
    ],
)
def test_a_start_that_just_worked_is_told_from_one_with_room(
    graphs: str, share: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a 24 GiB card, graphs that leave less than a sixth of themselves free, or too high a share, may fail next."""
    path = tmp_path / "vllm.log"
    path.write_text(
        f"Free memory on device (23.8/24.0 GiB) on startup. Desired GPU memory utilization is ({share}, 22.3 GiB). "
        "Actual usage is 15.0 GiB for weight, 0.5 GiB for peak activation, 0.2 GiB for non-torch memory, "
        f"and {graphs} GiB for CUDAGraph memory.\nAvailable KV cache memory: 7.0 GiB\n",
        encoding="utf-8",
    )
    assert main(["--from-log", str(path)]) == 0
    told = capsys.readouterr().out
    assert said in told
    assert ("the next start" in told) == bool(said)
