import math

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from exporter.sources import page
from exporter.sources.page import PageParser, Sample, lines_by_chunk, parse_page
from exporter.sources.vllm_names import PREFIXES, places
from tests.support.expositions import PAGES, TWO_ENGINES, exposition, gauge, many_engines


def by_the_real_parser(text: str) -> list[Sample]:
    return [
        Sample(sample.name, sample.labels, float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in places(PREFIXES)
    ]


@pytest.mark.parametrize("name", PAGES)
def test_agrees_with_the_real_parser_on_real_pages(name: str) -> None:
    """On every recorded page, the wanted samples are prometheus_client's, in its order, at first sight and after."""
    text = exposition(name)
    expected = by_the_real_parser(text)
    parser = PageParser()
    assert list(parser.parse([text.encode()])) == expected
    assert list(parser.parse([text.encode()])) == expected
    assert len(expected) > 60
    assert parser.malformed == 0
    assert parser.recognised


def test_series_that_are_not_wanted_are_left_out() -> None:
    """Nothing of Python, of HTTP, of `_created` or of latency buckets comes through."""
    names = {sample.name for sample in parse_page(exposition(TWO_ENGINES))}
    assert not [name for name in names if not name.startswith("vllm:") or name.endswith("_created")]
    assert "vllm:e2e_request_latency_seconds_bucket" not in names
    assert "vllm:time_to_first_token_seconds_count" in names


def test_where_chunks_end_does_not_matter() -> None:
    """A page cut into chunks anywhere reads as the same page."""
    body = exposition("vllm-0.32-one-engine-full.prom").encode()
    whole = parse_page(body)
    for size in (1, 7, 1000, 65536):
        assert list(PageParser().parse(body[at : at + size] for at in range(0, len(body), size))) == whole


def test_bytes_and_text_are_read_alike() -> None:
    """A page may be given as bytes or as text."""
    text = gauge("num_requests_running", 3)
    assert (
        parse_page(text)
        == parse_page(text.encode())
        == [Sample("vllm:num_requests_running", {"engine": "0", "model_name": "m"}, 3.0)]
    )


def test_a_line_that_is_no_sample_costs_only_itself() -> None:
    """Garbage between good lines is counted and everything else is read."""
    parser = PageParser()
    text = (
        gauge("num_requests_running", 3)
        + "vllm:num_requests_waiting{engine=0} 1\n"
        + 'vllm:num_requests_waiting{engine="0",model_name="m"} lots\n'
        + 'vllm:num_requests_waiting{engine="0",model_name="m"} 1_000\n'
        + "\x00\x01\x02 what is this\n"
        + "<b>no</b>\n"
        + gauge("kv_cache_usage_perc", 0.5)
    )
    names = [sample.name for sample in parser.parse([text.encode()])]
    assert names == ["vllm:num_requests_running", "vllm:kv_cache_usage_perc"]
    assert parser.malformed == 5


def test_bytes_that_are_not_utf8_cost_only_their_line() -> None:
    """A line in another encoding is malformed; a model name in UTF-8 is read."""
    parser = PageParser()
    good = gauge("num_requests_running", 3, model_name="Qwen/通义").encode()
    bad = good.replace("通义".encode(), b"\xff\xfe")
    assert [sample.labels["model_name"] for sample in parser.parse([bad + good])] == ["Qwen/通义"]
    assert parser.malformed == 1


def test_values_that_are_not_finite_are_read_as_they_stand() -> None:
    """NaN and the infinities are samples; what they mean is not the parser's business."""
    text = "".join(gauge("kv_cache_usage_perc", value) for value in ("NaN", "+Inf", "-Inf", "1e3"))
    values = [sample.value for sample in parse_page(text)]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, 1000.0]


def test_a_series_that_stands_there_twice_is_given_twice() -> None:
    """Repetition is left to whoever knows what the series means."""
    assert [s.value for s in parse_page(gauge("num_requests_running", 1) + gauge("num_requests_running", 2))] == [1, 2]


def test_timestamps_and_exemplars_do_not_hide_the_value() -> None:
    """A value is the first number after the labels, on the first reading of a series and on the second."""
    text = (
        'vllm:num_requests_running{engine="0",model_name="m"} 7 1795977900000\n'
        'vllm:request_prompt_tokens_bucket{engine="0",le="1.0",model_name="m"} 5 # {trace_id="x"} 1 1795977900\n'
        'vllm:request_prompt_tokens_bucket{engine="0",le="2.0",model_name="m"} 6 # {trace_id="x"} 1\n'
        'vllm:request_prompt_tokens_bucket{engine="0",le="5.0",model_name="m"} 0 # {trace_id="x"} 8\n'
        "vllm:prompt_tokens_total 9 1795977900000\n"
    )
    parser = PageParser()
    for _ in range(2):
        assert [sample.value for sample in parser.parse([text.encode()])] == [7, 5, 6, 0, 9]
        assert parser.malformed == 0


def test_labels_may_hold_anything_that_is_escaped() -> None:
    """Braces, quotes, hashes and line feeds in a label neither end the labels nor the line."""
    registry = CollectorRegistry()
    names = ["plain", "a}b", 'say "hi"', "back\\slash", "two\nlines", "x # y", "{", "a,b=c", "}", " 5"]
    running = Gauge("vllm:num_requests_running", "d", ["engine", "model_name"], registry=registry)
    for index, name in enumerate(names):
        running.labels("0", name).set(index)
    text = generate_latest(registry).decode()
    parser = PageParser()
    for _ in range(2):
        found = {sample.labels["model_name"]: sample.value for sample in parser.parse([text.encode()])}
        assert found == {name: float(index) for index, name in enumerate(names)}
    assert list(parser.parse([text.encode()])) == by_the_real_parser(text)


def test_the_openmetrics_form_is_read() -> None:
    """A page in OpenMetrics form, with `# EOF` and `_created`, gives the same samples as the classic one."""
    registry = CollectorRegistry()
    labels = ["engine", "model_name"]
    Gauge("vllm:num_requests_running", "d", labels, registry=registry).labels("0", "m").set(4)
    Counter("vllm:num_preemptions", "d", labels, registry=registry).labels("0", "m").inc(2)
    lengths = Histogram("vllm:request_prompt_tokens", "d", labels, buckets=[1, 2, 5], registry=registry)
    lengths.labels("0", "m").observe(3, {"trace_id": "abc"})
    openmetrics: bytes = generate_openmetrics(registry)  # type: ignore[no-untyped-call]
    assert openmetrics.endswith(b"# EOF\n")
    # Newer writers put an underscore for the colon.
    classic = [(name.replace(":", "_"), labels, value) for name, labels, value in parse_page(generate_latest(registry))]
    parser = PageParser()
    for _ in range(2):
        found = [(name.replace(":", "_"), labels, value) for name, labels, value in parser.parse([openmetrics])]
        assert sorted(found, key=str) == sorted(classic, key=str)
        assert {"vllm_num_preemptions_total", "vllm_request_prompt_tokens_bucket"} <= {name for name, *_ in found}
        assert parser.malformed == 0


@pytest.mark.parametrize(
    "line",
    [
        'vllm:num_requests_running {engine="0",model_name="m"} 3',
        'vllm:num_requests_running{engine="0",model_name="m",} 3',
        '  vllm:num_requests_running{engine="0", model_name="m"}\t3  ',
        '{"vllm:num_requests_running",engine="0",model_name="m"} 3',
        'vllm:num_requests_running{engine="0",model_name="m"} 3\r',
        "vllm:num_requests_running\t3",
    ],
)
def test_unusual_spellings_are_read_as_the_real_parser_reads_them(line: str) -> None:
    """White space, a trailing comma, a quoted name: whatever the real parser accepts is accepted."""
    assert parse_page(line + "\n") == by_the_real_parser(line + "\n")
    assert [sample.value for sample in parse_page(line + "\n")] == [3.0]


def test_the_start_of_the_process_is_told() -> None:
    """`process_start_time_seconds` is no engine's; it is kept beside the samples, and forgotten with its page."""
    parser = PageParser()
    told = []
    for text in (exposition(TWO_ENGINES), exposition("vllm-0.32-dp2-running.prom"), "process_start_time_seconds NaN\n"):
        list(parser.parse([text.encode()]))
        told.append(parser.process_start_time)
    assert told == [1.7959779008e09, None, None]


@pytest.mark.parametrize(
    ("text", "recognised"),
    [
        ("# HELP python_info x\n# TYPE python_info gauge\npython_info 1\n", True),
        ("python_info 1\n", True),
        ("# EOF\n", True),
        ("", False),
        ("\n\n", False),
        ("# just a comment\n", False),
        ("Hello world\n", False),
        ('{"detail":"Not Found"}\n', False),
        ("<html>\n<body>5</body>\n</html>\n", False),
    ],
)
def test_a_metrics_page_is_told_from_something_else(text: str, recognised: bool) -> None:
    """A page without vLLM is still a metrics page; HTML, JSON and prose are none."""
    parser = PageParser()
    for _ in range(2):
        assert not list(parser.parse([text.encode()]))
        assert parser.recognised is recognised


def test_an_endless_line_is_dropped_and_counted() -> None:
    """A line beyond the limit is one malformed line, however long, and the lines around it are read."""
    parser = PageParser()
    good = gauge("num_requests_running", 1).encode()
    chunks = [good, b"vllm:num_requests_running{x="] + [b"a" * 65536] * 20 + [b"\n" + good]
    assert [sample.value for sample in parser.parse(chunks)] == [1, 1]
    assert parser.malformed == 1
    assert max(len(line) for lines in lines_by_chunk(chunks) for line in lines) <= page.MAX_LINE_BYTES


def test_what_is_remembered_is_bounded() -> None:
    """Series that come and go do not fill the memory, and are read all the same."""
    parser = PageParser()
    filler = "x" * 20_000
    for turn in range(25):
        text = "".join(gauge("num_requests_running", i, model_name=f"{turn}-{i}-{filler}") for i in range(10))
        text += "".join(f"name_{turn}_{i} 1\n" for i in range(300))
        assert len(list(parser.parse([text.encode()]))) == 10
        assert sum(map(len, parser._series)) <= page.SPARE_BYTES + 2 * len(text)
    assert len(parser._others) == page.MAX_OTHER_NAMES


def test_a_page_that_stays_is_remembered_whatever_its_size() -> None:
    """Series beyond what may be remembered in vain are known again, for they are on every page."""
    parser = PageParser()
    names = [f"{index}-{'x' * 2000}" for index in range(2 * page.SPARE_BYTES // 2000)]
    body = "".join(gauge("num_requests_running", 1, model_name=name) for name in names).encode()
    list(parser.parse([body]))
    known = dict(parser._series)
    assert len(known) == len(names)
    for _ in range(2):
        again = list(parser.parse([body]))
        assert all(parser._series[series] is labels for series, labels in known.items())
        assert len(again) == len(names)


def test_a_page_of_64_engines_is_read_in_full() -> None:
    """Every engine of a large page comes through."""
    samples = parse_page(many_engines(64))
    assert len({sample.labels["engine"] for sample in samples}) == 64
    assert samples == by_the_real_parser(many_engines(64))


def test_other_prefixes_can_be_chosen() -> None:
    """Only the prefixes asked for are read."""
    text = gauge("num_requests_running", 1) + 'edge_vllm:num_requests_running{engine="0",model_name="m"} 2\n'
    assert [s.value for s in PageParser(("edge_vllm:",)).parse([text.encode()])] == [2]
