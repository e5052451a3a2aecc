"""Models of other kinds than Llama: what a real server holds for one request is what the arithmetic says."""

from pathlib import Path

import pytest

from tests_vllm.findings import Findings
from tests_vllm.holding import FLAGS, compare, plan, pools
from tests_vllm.load import Load
from tests_vllm.server import VllmServer
from tests_vllm.shapes import REFUSED, SHAPES
from tests_vllm.tiny import make_model


@pytest.mark.parametrize("name", SHAPES)
def test_blocks_and_pool_are_the_arithmetics(name: str, tmp_path: Path, findings: Findings) -> None:
    """At every context the server, the exporter and `plan --context` count the same blocks; pools are equal."""
    shape = SHAPES[name]
    model = make_model(tmp_path / "model", shape.config)
    with VllmServer(model, tmp_path / "vllm.log", *FLAGS, *shape.flags) as server:
        pool, held = compare(server, tmp_path / "exporter.log", *shape.flags)
    wrong = [one for one in held if not one.server == one.exporter == one.plan]
    findings.note(
        f"model {name}",
        groups=pool.groups,
        blocks=int(pool.server["num_gpu_blocks"]),
        tokens=int(pool.server["kv_cache_size_tokens"]),
        contexts=[one.context for one in held],
        held=[one.server for one in held],
        calibration=pool.calibration,
    )
    assert wrong == []
    assert pool.server == pool.plan
    assert pool.calibration == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_cpu_cannot_run_has_the_arithmetics_pool_all_the_same(
    name: str, tmp_path: Path, findings: Findings
) -> None:
    """Its kernels give up at the first request, in the words noted here; until then its pool is as computed."""
    shape = REFUSED[name]
    model = make_model(tmp_path / "model", shape.config)
    log = tmp_path / "vllm.log"
    with VllmServer(model, log, *FLAGS, *shape.flags) as server:
        pool = pools(server, plan(model, (), *shape.flags))
        with Load(server) as load:
            request = load.send(30, 5)
            load.wait(60)
    findings.note(f"model {name}", groups=pool.groups, blocks=int(pool.server["num_gpu_blocks"]), fault=request.fault)
    assert pool.server == pool.plan
    assert request.fault is not None
    assert shape.refusal in log.read_text(encoding="utf-8", errors="replace")
