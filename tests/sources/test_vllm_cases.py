"""Pages that people were misled by in public; each case names the report it came from."""

from dataclasses import replace

import pytest

from exporter.sources.engines import assemble
from exporter.sources.page import parse_page
from tests.support.expositions import exposition, gauge, series
from tests.support.readings import engine_of, engines_of, info


def test_the_smallest_groups_block_size_is_kept_as_told() -> None:
    """Tokens come from kv_cache_size_tokens; block_size 4 is told, and never multiplied here.

    vllm-project/vllm#51163.
    """
    text = gauge("num_requests_running", 0) + info(
        engine="0",
        block_size="4",
        user_specified_block_size="True",
        num_gpu_blocks="30000",
        kv_cache_size_tokens="1915648",
    )
    cache = engine_of(text).cache
    assert cache is not None
    assert (cache.block_size, cache.num_gpu_blocks, cache.kv_cache_size_tokens) == (4, 30000, 1915648)
    assert cache.labels["user_specified_block_size"] == "True"


def test_none_on_the_page_is_absent() -> None:
    """V1 up to 0.8 wrote num_gpu_blocks="None"; that is no number and no failure (vllm-project/vllm#16560)."""
    labels = {"block_size": "16", "cache_dtype": "auto", "num_gpu_blocks": "None", "num_cpu_blocks": "None"}
    cache = engine_of(gauge("num_requests_running", 0) + info(**labels, gpu_memory_utilization="0.9")).cache
    assert cache is not None
    assert cache.num_gpu_blocks is None
    assert (cache.block_size, cache.cache_dtype, cache.gpu_memory_utilization) == (16, "auto", 0.9)
    assert "num_cpu_blocks" not in cache.labels


def test_the_cache_joins_on_the_engine() -> None:
    """The info has no model name; it belongs to the engine whose label it bears (llm-d-autoscaling#1198)."""
    text = "".join(gauge("num_requests_running", 0, engine=str(index)) for index in range(3))
    text += info(engine="0", kv_cache_size_tokens="412000") + info(engine="1", kv_cache_size_tokens="6500")
    found = [engine.cache and engine.cache.kv_cache_size_tokens for engine in engines_of(text)]
    assert found == [412_000, 6_500, None]


def test_percentages_are_never_summed() -> None:
    """Eight engines at 50 % are eight readings of 0.5 (SemiAnalysisAI/InferenceX#1393)."""
    text = "".join(gauge("kv_cache_usage_perc", 0.5, engine=str(index)) for index in range(8))
    assert [engine.kv_usage for engine in engines_of(text)] == [0.5] * 8


@pytest.mark.parametrize("order", [1, -1])
def test_of_old_and_new_name_the_new_one_counts(order: int) -> None:
    """With both names on one page, in either order, the new one is used once and named (vllm-project/vllm#18354)."""
    both = [gauge("gpu_cache_usage_perc", 0.3), gauge("kv_cache_usage_perc", 0.7)]
    engine = engine_of("".join(both[::order]))
    assert engine.kv_usage == 0.7
    assert engine.names["kv_usage"] == "vllm:kv_cache_usage_perc"
    old = engine_of(both[0])
    assert old.kv_usage == 0.3
    assert old.names["kv_usage"] == "vllm:gpu_cache_usage_perc"


def test_the_choice_is_each_engines_own() -> None:
    """An engine that has only the old name is read by it, whatever its neighbour has."""
    text = gauge("gpu_cache_usage_perc", 0.3, engine="0") + gauge("gpu_cache_usage_perc", 0.4, engine="1")
    text += gauge("kv_cache_usage_perc", 0.6, engine="1")
    assert [engine.kv_usage for engine in engines_of(text)] == [0.3, 0.6]


def test_a_new_name_without_a_value_leaves_the_old_one() -> None:
    """NaN under the new name does not hide what the old name says."""
    assert engine_of(gauge("kv_cache_usage_perc", "NaN") + gauge("gpu_cache_usage_perc", 0.3)).kv_usage == 0.3


def test_swapping_exists_on_v0_alone() -> None:
    """Swapped requests and the CPU cache are read where they are and absent where not (vllm-project/vllm#15458)."""
    engine = engine_of(gauge("num_requests_swapped", 2) + gauge("cpu_cache_usage_perc", 0.25))
    assert (engine.swapped, engine.cpu_kv_usage) == (2, 0.25)
    assert engine_of(gauge("num_requests_running", 2)).swapped is None


def test_created_series_are_no_values() -> None:
    """The time at which a counter was made is never its value (vllm-project/production-stack#617)."""
    created = gauge("gpu_prefix_cache_hits_created", 1.7e9) + gauge("num_preemptions_created", 1.7e9)
    engine = engine_of(created + gauge("gpu_prefix_cache_hits_total", 4) + gauge("num_requests_running", 0))
    assert engine.prefix_hits == 4
    assert engine.preemptions is None


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", "ray_vllm:", "ray_vllm_"])
def test_every_prefix_is_known(prefix: str) -> None:
    """Sanitised names and Ray Serve's are read like vLLM's own (ray-project/ray#59071)."""
    text = exposition("vllm-0.32-one-engine-full.prom").replace("vllm:", prefix)
    engine = engine_of(text)
    expected = engine_of(exposition("vllm-0.32-one-engine-full.prom"))
    assert replace(engine, names={}) == replace(expected, names={})
    assert engine.names["kv_usage"] == f"{prefix}kv_cache_usage_perc"


def test_two_prefixes_on_one_page_count_once() -> None:
    """A page that shows every series under two prefixes has each engine once, by the first prefix."""
    text = gauge("generation_tokens_total", 5) + gauge("generation_tokens_total", 7).replace("vllm:", "ray_vllm_")
    engine = engine_of(text)
    assert engine.generation_tokens == 5
    assert engine.names["generation_tokens"] == "vllm:generation_tokens_total"


def test_replicas_on_one_page_stay_apart() -> None:
    """Two replicas of one Ray node, each with an engine 0, are two engines; one alone keeps its label."""
    one = series("ray_vllm_kv_cache_usage_perc", 0.2, engine="0", model_name="m", ReplicaId="a1", WorkerId="w1")
    two = series("ray_vllm_kv_cache_usage_perc", 0.9, engine="0", model_name="m", ReplicaId="b2", WorkerId="w2")
    assert [(e.engine, e.kv_usage) for e in engines_of(one)] == [("0", 0.2)]
    assert [(e.engine, e.kv_usage) for e in engines_of(one + two)] == [("0@a1", 0.2), ("0@b2", 0.9)]


def test_zero_usage_beside_running_requests_is_kept() -> None:
    """An engine that says 0 while it runs 4 is read as it says; the doubt is drawn further on.

    vllm-project/vllm-omni#4802.
    """
    engine = engine_of(gauge("num_requests_running", 4) + gauge("kv_cache_usage_perc", 0))
    assert (engine.running, engine.kv_usage) == (4.0, 0.0)


@pytest.mark.parametrize(
    ("awake", "weights_offloaded", "discard_all", "state"),
    [
        (1, 0, 0, "awake"),
        (0, 1, 0, "weights_offloaded"),
        (0, 0, 1, "discard_all"),
        (0, 0, 0, "asleep"),
        (1, 1, 0, None),
    ],
)
def test_the_sleep_state_is_the_one_that_holds(
    awake: int, weights_offloaded: int, discard_all: int, state: str | None
) -> None:
    """Not awake is asleep even where no level is told, and a contradiction is not known (vllm-project/vllm#42658)."""
    text = "".join(
        gauge("engine_sleep_state", value, sleep_state=name)
        for name, value in (("awake", awake), ("weights_offloaded", weights_offloaded), ("discard_all", discard_all))
    )
    assert engine_of(text).sleep_state == state


def test_capacity_in_bytes_is_read_where_it_is_told() -> None:
    """No released version tells it; one that does is believed (vllm-project/vllm#54183)."""
    assert engine_of(gauge("kv_cache_capacity_bytes", 8589934592)).kv_capacity_bytes == 8589934592
    assert engine_of(exposition("vllm-0.32-one-engine-full.prom")).kv_capacity_bytes is None


def test_adapters_are_no_engines() -> None:
    """Lora_requests_info, whose value is a time of day, makes no engine and no number (vllm-project/vllm#13303)."""
    adapters = "".join(
        series("vllm:lora_requests_info", value, max_lora="4", running_lora_adapters=names, waiting_lora_adapters="")
        for value, names in ((1.7395575657e9, "a,b"), (1.739557723e9, "a"), (1.739557717e9, ""))
    )
    assert engines_of(adapters) == ()
    assert engine_of(adapters + gauge("num_requests_running", 1)) == engine_of(gauge("num_requests_running", 1))


def test_blocks_held_by_nobody_are_seen() -> None:
    """Usage 0.6 with nothing running and nothing waiting is read as exactly that (vllm-project/vllm#46283)."""
    text = gauge("kv_cache_usage_perc", 0.6) + gauge("num_requests_running", 0) + gauge("num_requests_waiting", 0)
    engine = engine_of(text)
    assert (engine.kv_usage, engine.running, engine.waiting) == (0.6, 0.0, 0.0)


def test_a_frozen_page_differs_in_nothing_but_its_time() -> None:
    """Two readings of one page, 120 s apart, show that nothing moved while requests wait (vllm-project/vllm#36130)."""
    samples = parse_page(exposition("vllm-0.32-one-engine-full.prom"))
    (before,), (after,) = assemble(samples, 0.0), assemble(samples, 120.0)
    assert before.waiting == 1
    assert after.time - before.time == 120
    assert replace(after, time=0.0) == before


def test_preemptions_for_want_of_kv_are_told_apart() -> None:
    """The reason kv_full stands beside the total, whichever name carries the reasons (vllm-project/vllm#57698)."""
    total = gauge("num_preemptions_total", 9)
    for name in ("num_preemptions_by_reason", "num_preemptions_by_reason_total"):
        text = total + gauge(name, 4, reason="kv_full") + gauge(name, 5, reason="priority")
        engine = engine_of(text)
        assert (engine.preemptions, engine.preemptions_kv_full) == (9, 4)
    alone = gauge("num_preemptions_by_reason", 4, reason="kv_full")
    alone += gauge("num_preemptions_by_reason", 5, reason="prefix_reset")
    assert (engine_of(alone).preemptions, engine_of(alone).preemptions_kv_full) == (9, 4)
    assert engine_of(total).preemptions_kv_full is None
