"""`plan` answers machines in JSON, refuses wrong input in one line, and its exit code is the verdict."""

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.plan import main
from tests.kv.truth import cases, config

GIB = 2**30


def _file(tmp_path: Path, content: Any) -> str:
    path = tmp_path / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in cases()[:39]])
def test_json_equals_the_reference(case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through the command line, every figure of the contract is vLLM's, and what fits exits with 0."""
    flags = ["--model-config", _file(tmp_path, case["config"]), "--max-model-len", str(case["max_model_len"])]
    flags += ["--kv-memory-bytes", str(case["available_bytes"])]
    for name in ("kv_cache_dtype", "tensor_parallel_size"):
        if name in case:
            flags += [f"--{name.replace('_', '-')}", str(case[name])]
    context = list(case["expected"]["blocks_held_at_context"])[-1]
    code, answer = _json(capsys, *flags, "--context", context)
    expected = case["expected"]
    for name in ("num_gpu_blocks", "bytes_per_block", "block_size", "kv_cache_size_tokens", "max_concurrency"):
        assert answer[name] == expected[name]
    assert answer["blocks_held_at_context"] == expected["blocks_held_at_context"][context]
    assert answer["groups"] == expected["groups"]
    assert code == 0


def test_several_contexts_answer_by_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One `--context` is a number, several are a table."""
    flags = ["--model-config", _file(tmp_path, config("llama-3.1-8b")), "--max-model-len", "8k"]
    _, answer = _json(capsys, *flags, "--kv-memory-bytes", "16Gi", "--context", "16", "--context", "17")
    assert answer["blocks_held_at_context"] == {"16": 1, "17": 2}
    assert answer["kv_bytes_per_token"] == 131072
    _, listed = _json(capsys, *flags, "--kv-memory-bytes", "16Gi", "--context", "16,17")
    assert listed["blocks_held_at_context"] == answer["blocks_held_at_context"]


def test_a_gpu_leaves_what_the_budget_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """KV bytes are utilisation × total less every term, and each term says where it comes from."""
    flags = ["--model-config", _file(tmp_path, config("llama-3.1-8b")), "--max-model-len", "8192", "--gpu", "H100"]
    code, answer = _json(capsys, *flags)
    budget = answer["budget"]
    parts = sum(term["bytes"] for term in budget["terms"].values())
    assert code == 0
    assert answer["kv_memory_bytes"] == int(budget["gpu_memory_bytes"] * 0.92) - parts
    assert budget["kv_bytes_low"] < budget["kv_bytes"] < budget["kv_bytes_high"]
    assert {term["source"] for term in budget["terms"].values()} == {"computed", "estimated"}


def test_before_0_21_graphs_come_on_top(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same flags leave more for the cache in 0.20 than in 0.21, by the graphs."""
    flags = ["--model-config", _file(tmp_path, config("llama-3.1-8b")), "--max-model-len", "8192", "--gpu", "H100"]
    _, before = _json(capsys, *flags, "--vllm-version", "0.20")
    _, after = _json(capsys, *flags, "--vllm-version", "0.21")
    graphs = after["budget"]["terms"]["cuda_graphs"]["bytes"]
    assert before["kv_memory_bytes"] - after["kv_memory_bytes"] == graphs


def test_measured_terms_replace_estimates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A figure from a log is taken as it is."""
    flags = ["--model-config", _file(tmp_path, config("llama-3.1-8b")), "--max-model-len", "8192"]
    flags += ["--gpu-memory-bytes", "80Gi", "--gpu-memory-utilization", "0.9", "--weight-bytes", "15Gi"]
    flags += ["--activation-bytes", "5Gi", "--non-torch-bytes", "1Gi", "--cuda-graph-bytes", "1Gi"]
    _, answer = _json(capsys, *flags)
    assert answer["kv_memory_bytes"] == int(80 * GIB * 0.9) - 22 * GIB


def test_what_does_not_fit_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One request of max_model_len must fit beside the null block, else the shortfall is said."""
    flags = ["--model-config", _file(tmp_path, config("llama-3.1-8b")), "--max-model-len", "131072"]
    code, answer = _json(capsys, *flags, "--kv-memory-bytes", str(16 * GIB))
    assert code == 1
    assert not answer["fits"]
    assert answer["short_by_bytes"] == answer["bytes_per_block"]
    code, answer = _json(capsys, *flags, "--kv-memory-bytes", str(16 * GIB + answer["bytes_per_block"]))
    assert (code, answer["fits"], answer["short_by_bytes"]) == (0, True, 0)


@pytest.mark.parametrize("content", [{"text_config": None}, {}, "{", "[1]", '"x"', "null"])
def test_what_is_no_config_exits_with_2(content: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files that hold no model are refused in one line."""
    assert _refused(tmp_path, content, capsys).count("\n") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": -1}, "at least one layer"),
        ({"num_hidden_layers": "32"}, "whole number"),
        ({"num_hidden_layers": 1e400}, "whole number"),
        ({"num_attention_heads": 33}, "do not divide"),
        ({"num_attention_heads": 0}, "at least 1"),
        ({"num_key_value_heads": 0}, "at least 1"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"torch_dtype": "int3"}, "dtype"),
        ({"model_type": "siglip_vision_model"}, "vision encoder"),
        ({"model_type": "whisper", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "bert"}, "encoder"),
        ({"peft_type": "LORA", "base_model_name_or_path": "org/base"}, "LoRA adapter"),
        ({"layer_types": [1, 2]}, "layers of type 1, 2"),
        ({"layer_types": ["full_attention"]}, "values do not describe a model"),
        ({"model_type": "deepseek_v4"}, "does not count"),
    ],
)
def test_a_config_that_is_no_served_model_exits_with_2(
    change: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each fault is one line that says what is wrong."""
    message = _refused(tmp_path, {**config("llama-3.1-8b"), **change}, capsys)
    assert said in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--tensor-parallel-size", "3"), "do not divide over 3"),
        (("--max-model-len", "1000000"), "made for 131072 tokens"),
        (("--max-model-len", "0"), "at least 1"),
        (("--max-model-len", "many"), "whole number"),
        (("--kv-cache-dtype", "int3"), "int3"),
        (("--gpu", "H9000"), "not in the table"),
        (("--kv-memory-bytes", "-1"), "--kv-memory-bytes"),
        (("--gpu-memory-utilization", "1.5"), "ratio"),
        (("--pipeline-parallel-size", "64"), "pipeline stages"),
        (("--no-such-flag",), "no-such-flag"),
    ],
)
def test_wrong_flags_exit_with_2(
    flags: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each wrong flag is one line that names it."""
    path = _file(tmp_path, config("llama-3.1-8b"))
    assert main(["--model-config", path, "--kv-memory-bytes", "8Gi", *flags]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1


def test_a_length_slightly_beyond_the_model_is_computed_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """People raise the limit for their output; vLLM then wants its own override, which is said."""
    path = _file(tmp_path, config("qwen3-8b"))
    code, answer = _json(capsys, "--model-config", path, "--max-model-len", "40960", "--kv-memory-bytes", "16Gi")
    assert code == 0
    assert any("VLLM_ALLOW_LONG_MAX_MODEL_LEN" in warning for warning in answer["warnings"])


def test_a_refused_length_still_shows_machines_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Far beyond the model it is wrong use, yet JSON says what the pool would be, and why vLLM would not start."""
    path = _file(tmp_path, config("llama-2-7b"))
    assert main(["--model-config", path, "--max-model-len", "32768", "--kv-memory-bytes", "32Gi", "--json"]) == 2
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert (answer["fits"], answer["num_gpu_blocks"]) == (False, 4096)
    assert captured.err.count("\n") == 1
    assert answer["refusal"] in captured.err
    flags = ["--model-config", path, "--max-model-len", "32768", "--kv-memory-bytes", "32Gi"]
    assert main([*flags, "--allow-long-max-model-len"]) == 0


def test_a_missing_file_or_model_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a path nor an id that is nowhere gives a traceback."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert main(["--model-config", str(tmp_path / "no.json"), "--kv-memory-bytes", "1Gi"]) == 2
    assert main(["--model", "org/none", "--kv-memory-bytes", "1Gi"]) == 2
    assert main(["--kv-memory-bytes", "1Gi"]) == 2
    assert main(["--model-config", "x.json"]) == 2
    assert capsys.readouterr().err.count("\n") == 4


def test_a_model_is_read_from_the_cache_on_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--model` finds the snapshot of an id."""
    snapshot = tmp_path / "hub" / "models--org--llama" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(config("llama-3.1-8b")), encoding="utf-8")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    code, answer = _json(capsys, "--model", "org/llama", "--max-model-len", "4096", "--kv-memory-bytes", "1Gi")
    assert (code, answer["num_gpu_blocks"]) == (0, 512)


def test_an_unknown_architecture_is_marked_estimated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Dimensions suffice for a guess, and it is called one."""
    unknown = {**config("llama-3.1-8b"), "model_type": "brand_new", "architectures": ["BrandNewForCausalLM"]}
    flags = ["--model-config", _file(tmp_path, unknown), "--max-model-len", "8192", "--kv-memory-bytes", "16Gi"]
    code, answer = _json(capsys, *flags)
    assert (code, answer["estimated"], answer["num_gpu_blocks"]) == (0, True, 8192)


def test_a_checkpoints_kv_scheme_is_followed_under_auto(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cache is kept as the checkpoint asks, unless a dtype is chosen."""
    scheme = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    path = _file(tmp_path, {**config("llama-3.1-8b"), "quantization_config": scheme})
    flags = ["--model-config", path, "--max-model-len", "8192", "--kv-memory-bytes", "16Gi"]
    _, followed = _json(capsys, *flags)
    _, chosen = _json(capsys, *flags, "--kv-cache-dtype", "bfloat16")
    assert (followed["kv_cache_dtype"], followed["bytes_per_block"]) == ("fp8", 1048576)
    assert chosen["bytes_per_block"] == 2097152


def _refused(tmp_path: Path, content: Any, capsys: pytest.CaptureFixture[str]) -> str:
    flags = ["--model-config", _file(tmp_path, content), "--max-model-len", "2048", "--kv-memory-bytes", "8Gi"]
    assert main([*flags, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_vllms_speculative_config_is_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON that vLLM takes counts the draft's layer in the pool, and what is no such JSON is refused."""
    path = _file(tmp_path, config("llama-3.1-8b"))
    flags = ["--model-config", path, "--max-model-len", "8192", "--kv-memory-bytes", "16Gi"]
    stated = '{"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 3}'
    _, answer = _json(capsys, *flags, "--speculative-config", stated)
    assert answer["bytes_per_block"] == 33 * 65536
    assert any("draft" in warning for warning in answer["warnings"])
    assert main([*flags, "--speculative-config", "{"]) == 2
    assert main([*flags, "--speculative-method", "mtp"]) == 2


def test_weights_shrink_by_quantisation_and_offloading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Quantised at load, or kept in host memory: either leaves more for the cache, which stays what it is."""
    path = _file(tmp_path, config("llama-3.1-8b"))
    flags = ["--model-config", path, "--max-model-len", "8192", "--gpu", "L4"]
    _, plain = _json(capsys, *flags)
    _, fp8 = _json(capsys, *flags, "--quantization", "fp8")
    _, offloaded = _json(capsys, *flags, "--cpu-offload-gb", "4")
    assert fp8["weight_bytes_per_rank"] < 0.6 * plain["weight_bytes_per_rank"]
    assert offloaded["kv_memory_bytes"] - plain["kv_memory_bytes"] == 4 * GIB
    assert fp8["bytes_per_block"] == plain["bytes_per_block"]
