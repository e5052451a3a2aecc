"""Models of other kinds than Llama: what a real server holds for one request is what the arithmetic says."""

from pathlib import Path

import pytest

from tests_vllm.findings import Findings
from tests_vllm.holding import FLAGS, PROMPTS, Held, compare, plan, pools
from tests_vllm.load import Load
from tests_vllm.server import VllmServer
from tests_vllm.shapes import SHAPES
from tests_vllm.tiny import make_model


@pytest.mark.parametrize("name", SHAPES)
def test_blocks_and_pool_are_the_arithmetics(name: str, tmp_path: Path, findings: Findings) -> None:
    """At every context the server, the exporter and `plan --context` count the same blocks; pools are equal.

    Where the kernels for this CPU give up at the first request, in the words noted, the pool is as computed until then.
    """
    shape, log = SHAPES[name], tmp_path / "vllm.log"
    model = make_model(tmp_path / "model", shape.config)
    with VllmServer(model, log, *FLAGS, *shape.flags) as server:
        pool = pools(server, plan(model, (), *shape.flags))
        held: list[Held] = []
        fault = first_fault(server) if shape.refusal else None
        if fault is None:
            pool, held = compare(server, tmp_path / "exporter.log", *shape.flags)
    findings.note(
        f"model {name}",
        groups=pool.groups,
        blocks=int(pool.server["num_gpu_blocks"]),
        tokens=int(pool.server["kv_cache_size_tokens"]),
        contexts=[one.context for one in held],
        held=[one.server for one in held],
        calibration=pool.calibration,
        fault=fault,
    )
    assert pool.server == pool.plan
    assert [one for one in held if not one.server == one.exporter == one.plan] == []
    if fault is None:
        assert pool.calibration == pytest.approx(1.0, abs=1e-6)
    else:
        assert shape.refusal in log.read_text(encoding="utf-8", errors="replace")


def first_fault(server: VllmServer) -> str | None:
    """What goes wrong with a short request after each of the prompts; `None`: nothing."""
    with Load(server) as load:
        for prompt in PROMPTS:
            request = load.send(prompt, 5)
            load.wait(60)
            if request.fault is not None:
                return request.fault
    return None
