"""What a page says of its engines."""

import json
import math

import pytest

from exporter.reading import EngineReading, Histogram
from exporter.sources.engines import assemble
from exporter.sources.page import parse_page
from tests.support.expositions import PAGES, TWO_ENGINES, exposition, gauge, many_engines
from tests.support.readings import engine_of, engines_of, lengths


def test_two_engines_are_two_readings() -> None:
    """The two-engine page gives each engine its own numbers and the true capacity, and sums nothing."""
    first, second = engines_of(exposition(TWO_ENGINES))
    assert [(e.model_name, e.engine, e.kv_usage, e.running, e.waiting) for e in (first, second)] == [
        ("tiny-llama", "0", 0.42, 12.0, 0.0),
        ("tiny-llama", "1", 0.8200000000000001, 13.0, 3.0),
    ]
    assert second.waiting_by_reason == {"capacity": 3.0, "deferred": 0.0}
    for engine in (first, second):
        assert engine.cache is not None
        assert engine.cache.kv_cache_size_tokens == 148_336
        assert engine.cache.num_gpu_blocks == 9_271
        assert engine.cache.block_size == 128
        assert engine.cache.kv_cache_max_concurrency == 36.2
        assert engine.cache.kv_cache_memory_bytes is None
        assert engine.cache.gpu_memory_utilization == 0.92
        assert engine.cache.enable_prefix_caching is True
        assert "None" not in engine.cache.labels.values()
        assert engine.time == 10.0
        assert engine.sleep_state == "awake"


def test_a_full_engine_is_read_in_full() -> None:
    """Every concept of vLLM 0.32 is found, histograms as they stand."""
    engine = engine_of(exposition("vllm-0.32-one-engine-full.prom"))
    assert engine.kv_usage == pytest.approx(0.9451, abs=1e-4)
    assert (engine.running, engine.waiting, engine.preemptions) == (8.0, 1.0, 0.0)
    assert (engine.prompt_tokens, engine.generation_tokens, engine.prompt_tokens_cached) == (47904.0, 100580.0, 0.0)
    assert engine.finished == 215.0
    assert engine.finished_by_reason == {"stop": 0, "length": 215, "abort": 0, "error": 0, "repetition": 0}
    assert (engine.prefix_queries, engine.prefix_hits) == (47904.0, 0.0)
    assert engine.generation_lengths is not None
    assert engine.generation_lengths.bounds[-2:] == (2000.0, math.inf)
    assert engine.generation_lengths.counts[-3:] == (200.0, 215.0, 215.0)
    assert (engine.generation_lengths.sum, engine.generation_lengths.count) == (95042.0, 215.0)
    assert engine.first_tokens == Histogram((), (), 3.6000614166259766, 224.0)
    for histogram in (engine.prompt_lengths, engine.max_tokens_params):
        assert histogram is not None
        assert len(histogram.bounds) == len(histogram.counts) >= 8
        assert histogram.counts[-1] == histogram.count > 0
    for totals in (
        engine.iteration_tokens,
        engine.max_generation_lengths,
        engine.request_preemptions,
        engine.prefill_computed_tokens,
    ):
        assert totals is not None
        assert totals.bounds == totals.counts == ()
        assert totals.count > 0
    assert engine.swapped is engine.cpu_kv_usage is engine.kv_capacity_bytes is engine.preemptions_kv_full is None


def test_engines_that_have_not_reported_have_counters_and_no_gauges() -> None:
    """Right after the start of a data-parallel server, what is not on the page is absent, not zero."""
    for engine in engines_of(exposition("vllm-0.32-dp2-just-started.prom")):
        assert engine.kv_usage is engine.running is engine.waiting is None
        assert engine.waiting_by_reason == {}
        assert engine.preemptions == 0.0
        assert engine.cache is not None
        assert engine.cache.kv_cache_size_tokens == 8192
    assert [engine.running for engine in engines_of(exposition("vllm-0.32-dp2-running.prom"))] == [3.0, 3.0]


@pytest.mark.parametrize("name", PAGES)
def test_names_tell_where_each_concept_was_found(name: str) -> None:
    """Exactly the concepts that have a value are named, with a name that stands on the page."""
    text = exposition(name)
    for engine in engines_of(text):
        values = {field: getattr(engine, field) for field in EngineReading.__dataclass_fields__}
        found = {
            k for k, v in values.items() if v not in (None, {}) and k not in ("time", "model_name", "engine", "names")
        }
        assert set(engine.names) == found
        assert all(metric in text for metric in engine.names.values())
        assert engine.names["preemptions"] == "vllm:num_preemptions_total"
        assert engine.names["prompt_lengths"] == "vllm:request_prompt_tokens"


def test_an_engine_that_vanishes_is_gone_and_one_that_appears_is_there() -> None:
    """Nothing of an earlier page stays: the engines are those of this page."""
    assert [e.engine for e in engines_of(gauge("num_requests_running", 1, engine="0"))] == ["0"]
    text = "".join(gauge("num_requests_running", 1, engine=str(index)) for index in (10, 2, 0))
    assert [e.engine for e in engines_of(text)] == ["0", "2", "10"]
    assert [e.engine for e in engines_of(gauge("num_requests_running", 1, engine="2"))] == ["2"]


def test_counters_are_the_pages_own() -> None:
    """A counter that was reset is read as it stands; guarding against resets is the window's part."""
    assert engine_of(gauge("num_preemptions_total", 500)).preemptions == 500
    assert engine_of(gauge("num_preemptions_total", 3)).preemptions == 3


def test_a_page_without_vllm_has_no_engines() -> None:
    """Python's and the process' own series are no engine (vllm-project/vllm#8612)."""
    assert engines_of("# TYPE python_info gauge\npython_info 1\nprocess_open_fds 7\n") == ()


def test_several_models_may_share_an_engine_label() -> None:
    """Model and engine together make an engine."""
    text = gauge("kv_cache_usage_perc", 0.1, model_name="b") + gauge("kv_cache_usage_perc", 0.2, model_name="a")
    assert [(e.model_name, e.engine, e.kv_usage) for e in engines_of(text)] == [("a", "0", 0.2), ("b", "0", 0.1)]


def test_lines_without_labels_are_engine_zero() -> None:
    """V0 had no engine label, and some setups drop the model's name."""
    assert [(e.model_name, e.engine) for e in engines_of("vllm:num_requests_running 3\n")] == [("", "0")]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1.2"])
def test_a_usage_that_cannot_be_is_absent(value: str) -> None:
    """A ratio outside 0..1 is no reading; the engine's other values stay."""
    engine = engine_of(gauge("kv_cache_usage_perc", value) + gauge("num_requests_running", 2))
    assert engine.kv_usage is None
    assert "kv_usage" not in engine.names
    assert engine.running == 2


def test_rounding_above_one_is_one() -> None:
    """A full pool that reads 1.0000000000000002 is full."""
    assert engine_of(gauge("kv_cache_usage_perc", 1.0000000000000002)).kv_usage == 1.0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-3"])
def test_a_counter_that_cannot_be_is_absent(value: str) -> None:
    """A counter is a finite number from zero up."""
    assert engine_of(gauge("num_preemptions_total", value)).preemptions is None


def test_a_series_that_stands_there_twice_counts_once() -> None:
    """Duplicates, in whatever order of labels, are not added up."""
    text = gauge("generation_tokens_total", 5) + 'vllm:generation_tokens_total{model_name="m",engine="0"} 5\n'
    text += gauge("prompt_tokens_total", 4, pid="7", host="a") + gauge("prompt_tokens_total", 4, host="a", pid="7")
    text += gauge("request_success_total", 2, finished_reason="stop") * 2
    engine = engine_of(text)
    assert (engine.generation_tokens, engine.prompt_tokens) == (5, 4)
    assert engine.finished == 2
    assert engine.finished_by_reason == {"stop": 2}


@pytest.mark.parametrize("values", [(5, 3), (3, 5)])
def test_of_two_values_of_one_series_the_higher_counts(values: tuple[int, int]) -> None:
    """A page that contradicts itself is read the same whichever value comes first."""
    engine = engine_of("".join(gauge("num_requests_running", value) for value in values))
    assert engine.running == 5


def test_the_front_ends_of_one_engine_are_one_engine() -> None:
    """With a `pid` label, gauges count by their highest, counters and histograms by their sum."""
    text = "".join(
        gauge("kv_cache_usage_perc", usage, pid=pid)
        + gauge("num_requests_running", running, pid=pid)
        + gauge("num_requests_waiting_by_reason", waiting, reason="capacity", pid=pid)
        + gauge("generation_tokens_total", tokens, pid=pid)
        + lengths("request_prompt_tokens", {"1.0": 1, "+Inf": requests}, 10 * requests, requests, pid=pid)
        for pid, usage, running, waiting, tokens, requests in (("71", 0.4, 9, 1, 100, 3), ("72", 0.6, 7, 0, 50, 2))
    )
    engine = engine_of(text)
    assert (engine.kv_usage, engine.running, engine.waiting_by_reason) == (0.6, 9.0, {"capacity": 1.0})
    assert engine.generation_tokens == 150
    assert engine.prompt_lengths == Histogram((1.0, math.inf), (2.0, 5.0), 50.0, 5.0)


def test_reasons_are_never_added_to_the_waiting() -> None:
    """The parts stand beside the total; without a total there is none."""
    parts = gauge("num_requests_waiting_by_reason", 4, reason="capacity")
    parts += gauge("num_requests_waiting_by_reason", 2, reason="deferred")
    assert engine_of(parts + gauge("num_requests_waiting", 6)).waiting == 6
    assert engine_of(parts).waiting is None
    assert engine_of(parts).waiting_by_reason == {"capacity": 4, "deferred": 2}


def test_what_does_not_change_is_held_once() -> None:
    """Readings of successive pages share bounds, names and cache configuration."""
    first, second = (engine_of(exposition("vllm-0.32-one-engine-full.prom")) for _ in range(2))
    assert first.cache is second.cache
    assert first.names is second.names
    assert first.prompt_lengths is not None
    assert second.prompt_lengths is not None
    assert first.prompt_lengths.bounds is second.prompt_lengths.bounds


def test_64_engines_are_64_readings() -> None:
    """A large page gives every engine the numbers of its own."""
    engines = engines_of(many_engines(64))
    assert [engine.engine for engine in engines] == [str(index) for index in range(64)]
    assert {engine.kv_usage for engine in engines} == {0.42}


def test_recorded_series_make_the_same_reading() -> None:
    """Samples of a recording, given as plain tuples, are as good as a page's."""
    samples = [tuple(sample) for sample in parse_page(exposition(TWO_ENGINES))]
    revived = [(name, labels, value) for name, labels, value in json.loads(json.dumps(samples))]
    assert assemble(revived, 10.0) == engines_of(exposition(TWO_ENGINES))
