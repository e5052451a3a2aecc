"""The whole daemon with the real pynvml, on a page of vLLM and the stub of the driver's library."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.nvml_stub.stub import GIB, ROOT, build
from tests.support.expositions import TWO_ENGINES, exposition
from tests.support.pages import PageServer, answer


@contextmanager
def daemon(libraries: Path, lost: Path, *flags: str) -> Iterator[Callable[[], str]]:
    """`vllm-headroom run` beside a server; yields what scrapes its page."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "NVML_STUB_LOST": str(lost)}
    command = [sys.executable, "-m", "exporter", "run", "--listen", "127.0.0.1:0", "--poll-interval-seconds", "0.2"]
    with PageServer(answer(exposition(TWO_ENGINES))) as server:
        arguments = [*command, "--vllm-url", server.url, *flags]
        process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            url = next(found[1] for line in process.stderr if (found := re.search(r"serves (http://\S+)", line)))
            yield lambda: httpx.get(f"{url}/metrics", timeout=30).text
        finally:
            process.kill()
            process.communicate()


Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(page: str) -> Series:
    """Every sample of a page by name and labels."""
    return {
        (sample.name.removeprefix("vllm_headroom_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def key(family: str, /, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return family, frozenset(labels.items())


def until(scrape: Callable[[], str], wanted: tuple[str, frozenset[tuple[str, str]]]) -> Series:
    """The first page on which that series is 1."""
    end = time.monotonic() + 60
    while (seen := series(scrape())).get(wanted) != 1:
        assert time.monotonic() < end, sorted(seen)
        time.sleep(0.1)
    return seen


def test_a_gpu_reaches_the_page_is_lost_and_comes_back(tmp_path: Path) -> None:
    """Its memory, rule and risk are exported; lost, they stop and the source is down; found, they are there again."""
    lost = tmp_path / "lost"
    gpu = {"gpu": "0", "uuid": "GPU-00000000"}
    fine = key("device_state", state="ok", **gpu)
    with daemon(build(tmp_path, "WITH_CARD"), lost) as scrape:
        seen = until(scrape, fine)
        assert seen[key("device_memory_bytes", kind="free", **gpu)] == 9 * GIB
        assert seen[key("device_memory_bytes", kind="reserved", **gpu)] == GIB
        assert seen[key("device_info", name="NVIDIA Stub", rule="all_visible", **gpu)] == 1
        assert seen[key("oom_predicted", risk="device", **gpu)] == 0
        assert seen[key("oom_probability", risk="device", horizon_seconds="3600", **gpu)] == 0
        over = 70 * GIB - int(0.92 * 79 * GIB)
        assert seen[key("device_over_budget_bytes", **gpu)] == over, "the page says gpu_memory_utilization 0.92"
        lost.touch()
        seen = until(scrape, key("source_down_reason", source="nvml", reason="gpu_lost"))
        assert seen[key("source_up", source="nvml")] == 0
        assert not [name for name, labels in seen if name.startswith("device_") or ("risk", "device") in labels]
        assert [name for name, _ in seen if name == "kv_tokens"], "the rest of the page stays"
        lost.unlink()
        assert until(scrape, fine)[key("source_up", source="nvml")] == 1
