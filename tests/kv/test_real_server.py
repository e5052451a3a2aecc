"""The arithmetic against what real vLLM servers stated and held, as bench/proof/models.py wrote it down."""

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.kv.options import EngineOptions
from exporter.kv.sizing import held_blocks, size

MODELS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "kv" / "real_server.json").read_text())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["model"])
def test_pool_and_blocks_are_those_of_a_real_server(model: dict[str, Any]) -> None:
    """Blocks and tokens of the pool, and the blocks that one request held at each context."""
    options = EngineOptions(
        max_model_len=model["max_model_len"],
        max_num_batched_tokens=model["max_num_batched_tokens"],
        block_size=model["block_size"],
    )
    pool = size(model["config"], options, model["kv_bytes"])
    assert (pool.num_gpu_blocks, pool.kv_cache_size_tokens) == (model["num_gpu_blocks"], model["kv_cache_size_tokens"])
    held = {context: held_blocks(pool, options, int(context)) for context in model["held"]}
    assert held == model["held"]
