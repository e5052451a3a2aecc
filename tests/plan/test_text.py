"""The plan for people says what it is made of, what fits, and what would help, in plain text."""

import json
import re
from pathlib import Path

import pytest

from exporter.plan import main
from exporter.plan.answer import make_plan
from exporter.plan.arguments import parse_arguments
from exporter.plan.gpus import gpu_bytes, gpu_names
from exporter.plan.levers import levers
from exporter.plan.text import render
from tests.kv.truth import config


def _plan_text(tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, *flags: str) -> tuple[int, str]:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(model)), encoding="utf-8")
    code = main(["--model-config", str(path), *flags])
    return code, capsys.readouterr().out


def test_a_gpu_is_shown_as_a_stacked_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights, graphs, activations, KV and free add up to the card, each with its size."""
    code, text = _plan_text(tmp_path, capsys, "llama-3.1-8b", "--gpu", "H100", "--max-model-len", "32768")
    bar = next(line for line in text.splitlines() if line.startswith("["))
    sizes = [float(size) for size in re.findall(r"(?:weights|graphs|activations|KV cache|free) ([\d.]+) GiB", text)]
    assert code == 0
    assert 58 <= len(bar) <= 64
    assert sum(sizes[:5]) == pytest.approx(79.18, abs=0.03)
    assert "\x1b[" not in text


def test_the_table_is_context_by_concurrency(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """16 GiB of Llama-3 8B hold one request fewer than the round number, since block 0 is nobody's."""
    flags = ("--kv-memory-bytes", "16Gi", "--max-model-len", "65536", "--context", "5000")
    code, text = _plan_text(tmp_path, capsys, "llama-3.1-8b", *flags)
    found = re.findall(r"^\s*([\d,]+)\s+[\d,]+\s+[\d.]+ GiB\s+([\d,.]+)\s+([\d,]+)$", text, re.MULTILINE)
    table = {context: requests for context, _, requests in found}
    assert code == 0
    assert {"4,096": "32.00", "8,192": "16.00", "32,768": "4.00"}.items() <= {row[0]: row[1] for row in found}.items()
    assert table == {
        "1,024": "127",
        "4,096": "31",
        "5,000": "26",
        "8,192": "15",
        "16,384": "7",
        "32,768": "3",
        "65,536": "1",
    }
    assert "--max-num-seqs" in text


def test_what_does_not_fit_says_by_how_much_and_what_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """70B on two cards of 44 GiB is short of weights; four of them hold it."""
    flags = ("--gpu", "L40S", "-tp", "2", "--max-model-len", "32k")
    code, text = _plan_text(tmp_path, capsys, "llama-3.1-70b-tp4", *flags)
    assert code == 1
    assert re.search(r"does not fit, short by [\d.]+ GiB per GPU", text)
    assert re.search(r"fits\s+--tensor-parallel-size 4", text)


def test_levers_are_ranked_and_priced() -> None:
    """The strongest comes first, and each has its flags and its cost."""
    request = parse_arguments(["--model-config", "x", "--gpu", "L4", "--max-model-len", "8192"])
    llama = {**config("llama-3.1-8b")}
    found = levers(llama, make_plan(llama, request))
    gains = [lever.gain for lever in found if lever.gain is not None]
    assert gains == sorted(gains, reverse=True)
    assert {lever.flags.split()[0] for lever in found} >= {
        "--kv-cache-dtype",
        "--tensor-parallel-size",
        "--max-model-len",
        "--gpu-memory-utilization",
        "--kv-offloading-size",
    }
    assert all(lever.cost for lever in found)
    assert next(lever for lever in found if lever.flags == "--kv-cache-dtype fp8").gain == pytest.approx(2, rel=0.01)


def test_a_hybrid_explains_its_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """State-space layers and their assumed dtype are named."""
    flags = ("--kv-memory-bytes", "24Gi", "--max-model-len", "32768")
    _, text = _plan_text(tmp_path, capsys, "qwen3-next-80b", *flags)
    assert "3 × state, 1 × full" in text
    assert "--mamba-ssm-cache-dtype" in text


def test_quantised_weights_are_said_not_to_change_the_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a user looks, it says that weight quantisation leaves the cache alone."""
    path = tmp_path / "config.json"
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    path.write_text(json.dumps({**config("llama-3.1-8b"), "quantization_config": awq}), encoding="utf-8")
    assert main(["--model-config", str(path), "--gpu", "L4", "--max-model-len", "8192"]) == 0
    assert "never changes the bytes of the KV cache" in capsys.readouterr().out


def test_colour_is_only_for_terminals() -> None:
    """The same text with and without colour, but for the escape codes."""
    request = parse_arguments(["--model-config", "x", "--gpu", "L4", "--max-model-len", "8192"])
    llama = config("llama-3.1-8b")
    plan = make_plan(llama, request)
    bright, plain = render(plan, llama, colour=True), render(plan, llama, colour=False)
    assert "\x1b[" in bright
    assert re.sub(r"\x1b\[\d+m", "", bright) == plain


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("H100", 79.18),
        ("NVIDIA H100 80GB HBM3", 79.18),
        ("rtx 5090", 31.38),
        ("NVIDIA GeForce RTX 4090", 23.53),
        ("a100", 79.25),
    ],
)
def test_gpus_are_known_by_the_names_people_use(name: str, gib: float) -> None:
    """The driver's name, the box's name and the short name mean one part."""
    assert gpu_bytes(name)[1] == pytest.approx(gib * 2**30, rel=1e-6)


def test_no_gpu_has_more_than_its_box_says() -> None:
    """Usable bytes are fewer than the gigabytes in a part's name, read as GiB."""
    for name in gpu_names():
        if match := re.search(r"-(\d+)GB", name):
            assert gpu_bytes(name)[1] <= int(match[1]) * 2**30
