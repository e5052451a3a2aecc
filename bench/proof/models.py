"""What real servers with models of several kinds held, as a section of docs/proof.md and as truth for the fast tests.

VLLM_FINDINGS=found.json scripts/test-vllm tests_vllm/test_models.py
python -m bench.proof.models found.json && python docs/build.py
"""

import argparse
import json
from pathlib import Path
from typing import Any

from bench.proof.section import Section, Table, here
from tests_vllm.holding import BATCHED_TOKENS, BLOCK_SIZE, KV_BYTES, MAX_MODEL_LEN
from tests_vllm.shapes import SHAPES, Shape

TRUTH = Path(__file__).parents[2] / "tests" / "data" / "kv" / "real_server.json"
PREFIX = "model "
KINDS = {
    "FullAttentionSpec": "full attention",
    "SlidingWindowSpec": "window",
    "MLAAttentionSpec": "MLA",
    "MambaSpec": "state",
}
Found = dict[str, dict[str, Any]]


def block_size(shape: Shape) -> int:
    """What its server was started with."""
    flags = dict(zip(shape.flags[::2], shape.flags[1::2], strict=True))
    return int(flags.get("--block-size", BLOCK_SIZE))


def truth(found: Found, version: str) -> list[dict[str, Any]]:
    """One entry for each model that was run: its config, its options, what its server stated and held."""
    return [
        {
            "model": name,
            "vllm": version,
            "config": {key: value for key, value in SHAPES[name].config.items() if value is not None},
            "kv_bytes": KV_BYTES,
            "max_model_len": MAX_MODEL_LEN,
            "max_num_batched_tokens": BATCHED_TOKENS,
            "block_size": block_size(SHAPES[name]),
            "num_gpu_blocks": found[PREFIX + name]["blocks"],
            "kv_cache_size_tokens": found[PREFIX + name]["tokens"],
            "held": dict(zip(found[PREFIX + name]["contexts"], found[PREFIX + name]["held"], strict=True)),
        }
        for name in SHAPES
        if ran(found, name)
    ]


def ran(found: Found, name: str) -> bool:
    """Whether its requests were served."""
    return bool(found.get(PREFIX + name, {}).get("held"))


def groups(stated: str) -> str:
    """The groups of a plan, in words: equal ones counted."""
    each = stated.split(", ")
    told = []
    for one in dict.fromkeys(each):
        layers, kind, _, size = one.split(" ")
        many = f"{each.count(one)} × " if each.count(one) > 1 else ""
        told.append(f"{many}{KINDS.get(kind, kind)} ({layers} layer{'s' * (layers != '1')}, {size} tokens a block)")
    return "; ".join(told)


def section(found: Found, version: str) -> Section:
    """The comparison, and what could not be compared."""
    rows = []
    for name in SHAPES:
        if not ran(found, name):
            continue
        one = found[PREFIX + name]
        held = ", ".join(f"{blocks} at {context}" for context, blocks in zip(one["contexts"], one["held"], strict=True))
        rows.append((name, groups(one["groups"]), f"{one['blocks']:,}", f"{one['tokens']:,}", held))
    refused = [
        f"{name}: “{shape.refusal}”" for name, shape in SHAPES.items() if found.get(PREFIX + name, {}).get("fault")
    ]
    text = [
        "Tiny models with random weights whose layers keep what those of the models named keep. vLLM makes its pool of "
        "1 GiB; a lone request is held at a known length with the engine suspended. Blocks by vLLM's page, by the "
        "exporter and by `vllm-headroom plan --context` are equal at every context, and so are the number of blocks, "
        "the block size, the capacity in tokens and the calibration (1.00).",
    ]
    if refused:
        text.append(
            "Kernels of the CPU build give up on the first request to these, so that only their pools could be "
            f"compared, and those are equal: {'; '.join(refused)}."
        )
    return Section(
        order=15,
        title="Models of several kinds",
        text=tuple(text),
        command="scripts/test-vllm tests_vllm/test_models.py",
        ran=here(version),
        tables=(Table(("like", "groups", "blocks of 1 GiB", "tokens", "blocks held, by context"), tuple(rows)),),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--vllm", default="0.32.0")
    options = parser.parse_args()
    found: Found = json.loads(options.file.read_text(encoding="utf-8"))
    TRUTH.write_text(json.dumps(truth(found, options.vllm), indent=1) + "\n", encoding="utf-8")
    section(found, options.vllm).save("models")


if __name__ == "__main__":
    main()
