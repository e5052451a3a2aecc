"""The embedded engine's page against pages of real engines."""

import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from exporter.demo.engine import DemoEngine, EngineConfig
from exporter.demo.page import PageCollector
from exporter.demo.scheduler import Limits, Request
from exporter.sources.engines import assemble
from exporter.sources.page import PageParser
from exporter.sources.vllm_names import PREFIXES
from tests.support.expositions import exposition


def page(*engines: DemoEngine) -> str:
    """The page as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PageCollector(engines, created=1.5e9))
    return generate_latest(registry).decode()


def engine(label: str = "0", model: str = "tiny") -> DemoEngine:
    """An engine set up as the one behind the recorded page."""
    limits = Limits(num_gpu_blocks=256, block_size=32, max_model_len=4096)
    config = EngineConfig(model_name=model, engine=label, limits=limits, gpu_memory_utilization=0.92)
    return DemoEngine(config, [Request(0.1, 300, 40), Request(0.2, 20, 3, max_tokens=3)])


def comments(text: str) -> set[str]:
    """HELP and TYPE of vLLM's own families."""
    return {line for line in text.splitlines() if line.startswith("# ") and " vllm:" in line}


def series(text: str) -> set[str]:
    """The series of vLLM itself: names and labels, without values."""
    return {line.rpartition(" ")[0] for line in text.splitlines() if line.startswith("vllm:")}


def without_cache_config(names: set[str]) -> set[str]:
    """All series but the one whose labels are the settings of the engine."""
    return {name for name in names if not name.startswith("vllm:cache_config_info")}


def test_families_are_vllms() -> None:
    """HELP and TYPE are those of vLLM 0.32, word for word, none more and none less."""
    assert comments(page(engine())) == comments(exposition("vllm-0.32-one-engine-quiet.prom"))


def test_series_are_vllms() -> None:
    """Every series has vLLM's name, labels and bucket bounds, none more and none less."""
    real = series(exposition("vllm-0.32-one-engine-quiet.prom"))
    assert without_cache_config(series(page(engine()))) == without_cache_config(real)


def test_cache_config_has_vllms_labels() -> None:
    """`cache_config_info` has the real one's labels, and the values that the engine settles agree with it."""
    info = re.compile(r"^vllm:cache_config_info{(.*)} 1.0$", re.MULTILINE)
    ours, real = (
        dict(re.findall(r'(\w+)="(.*?)"', text[1]))
        for text in (info.search(page(engine())), info.search(exposition("vllm-0.32-one-engine-quiet.prom")))
        if text is not None
    )
    assert ours.keys() == real.keys()
    assert {name for name in real if ours[name] != real[name]} == {
        "effective_attention_block_size",  # only the CPU backend tells it
        "kv_cache_memory_bytes",  # the CPU backend is given bytes instead of a share
        "num_gpu_blocks_override",
    }


def test_several_engines_share_a_page() -> None:
    """Engines are told apart by their label, as on a page of a data-parallel server."""
    text = page(engine("0", "m"), engine("1", "m"))
    for label in ("0", "1"):
        assert f'vllm:kv_cache_usage_perc{{engine="{label}",model_name="m"}} 0.0' in text
    assert comments(text) == comments(page(engine()))


def test_a_reading_of_the_page_says_what_the_engine_did() -> None:
    """Read by the exporter, the page gives the engine's own figures."""
    running = engine()
    running.advance(0.5)
    (reading,) = assemble(PageParser().parse([page(running).encode()]), 0.5, PREFIXES)
    assert (reading.running, reading.waiting) == (1.0, 0.0)
    assert reading.kv_usage == pytest.approx(running.scheduler.pool.used / 255)
    assert (reading.prompt_tokens, reading.finished) == (320.0, 1.0)
    assert reading.finished_by_reason["length"] == 1.0
    assert reading.generation_lengths is not None
    assert (reading.generation_lengths.count, reading.generation_lengths.sum) == (1.0, 3.0)
    assert reading.cache is not None
    assert (reading.cache.num_gpu_blocks, reading.cache.kv_cache_size_tokens) == (256, 8192)
    assert reading.sleep_state == "awake"


@pytest.mark.parametrize(("level", "state"), [(1, "weights_offloaded"), (2, "discard_all")])
def test_a_sleeping_engine_says_so(level: int, state: str) -> None:
    """The sleep level shows as vLLM shows it."""
    sleeping = engine()
    sleeping.sleep_level = level
    text = page(sleeping)
    assert f'sleep_state="{state}"}} 1.0' in text
    assert 'sleep_state="awake"} 0.0' in text
