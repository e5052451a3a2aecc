"""Whatever bytes come, the page parser ends, keeps its bounds, and says what the real parser says."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter.sources import page
from exporter.sources.engines import assemble
from exporter.sources.page import PageParser, Sample, lines_by_chunk
from exporter.sources.vllm_names import PREFIXES, PROCESS_START, places
from tests.support.expositions import exposition

NAMES = sorted(places(PREFIXES))
FUZZ = settings(max_examples=100, deadline=None)
WANTED = frozenset(NAMES)
WARM = PageParser()
"""Has met the recorded pages, so that only what is new to it takes its time."""

label_names = st.sampled_from(["engine", "model_name", "le", "reason", "finished_reason", "sleep_state", "pid", "x"])
label_values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=12)
numbers = st.one_of(
    st.floats().map(repr),
    st.integers(-10, 10**18).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "Inf", "+1", "-0", "1.", ".5", "1e5", "1E-3", "+1.5e+300", "1e999", "007"]),
)
blanks = st.sampled_from(["", "", " ", "\t", "  "])
EVERY_NAME = sorted(
    [*NAMES[::7], "vllm:num_requests_running", "vllm:kv_cache_usage_perc", "python_info", "up"], key=len, reverse=True
)
names = st.sampled_from(EVERY_NAME)
FAMILY_NAMES = {
    "gauge": ["vllm:num_requests_running", "ray_vllm:kv_cache_usage_perc", "up"],
    "counter": ["vllm:num_preemptions_total", "vllm_prompt_tokens_total", "http_requests_total"],
    "histogram": ["vllm:request_prompt_tokens", "vllm:iteration_tokens_total", "vllm:e2e_request_latency_seconds"],
    "summary": ["vllm:time_to_first_token_seconds", "rpc_duration_seconds"],
    "untyped": ["vllm:cache_config_info", "something"],
}
FAMILIES = [
    ("gauge", ("",)),
    ("counter", ("",)),
    ("histogram", ("_bucket", "_sum", "_count")),
    ("summary", ("", "_sum", "_count")),
    ("untyped", ("",)),
]
pieces = st.one_of(
    st.sampled_from(["{", "}", '"', "\\", ",", "=", " ", "\t", "\n", "#", " # ", "# TYPE ", "1", "NaN", "+Inf", "_"]),
    st.sampled_from(["vllm:num_requests_running", 'engine="0"', 'model_name="m"', "le=", "1.5", "1795977900000", "é"]),
    st.text(max_size=4),
)


@st.composite
def valid_lines(draw: st.DrawFn) -> str:
    """A line as an exposition may write it, timestamps and odd white space included."""
    name = draw(names)
    labels = draw(st.dictionaries(label_names, label_values, max_size=4))
    escaped = (
        f"{key}{draw(blanks)}={draw(blanks)}"
        + '"'
        + value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        + '"'
        for key, value in labels.items()
    )
    comma = draw(st.sampled_from([",", ", ", " ,", ",\t"]))
    inside = comma.join(escaped)
    if inside and draw(st.booleans()):
        inside += ","
    braces = draw(blanks) + "{" + draw(blanks) + inside + draw(blanks) + "}" if inside or draw(st.booleans()) else ""
    space = draw(st.sampled_from([" ", "  ", "\t"]))
    stamp = draw(st.sampled_from(["", "", "", " 1795977900000", "  -1", " 0 "]))
    return f"{draw(blanks)}{name}{braces}{space}{draw(numbers)}{stamp}"


@st.composite
def valid_pages(draw: st.DrawFn) -> str:
    """A page as a server may write it: families with help and type, comments, blank lines, series without a family."""
    page = []
    for _ in range(draw(st.integers(0, 5))):
        of_type, parts = draw(st.sampled_from(FAMILIES))
        name = draw(st.sampled_from(FAMILY_NAMES[of_type]))
        help_text = draw(label_values).replace("\\", r"\\").replace("\n", r"\n")
        page += draw(st.sampled_from([[], [f"# HELP {name} {help_text}"], [f"#\tHELP  {name}"]]))
        page += draw(st.sampled_from([[], [f"# TYPE {name} {of_type}"]]))
        for line in draw(st.lists(valid_lines(), max_size=4)):
            rest = line.lstrip()[len(next(filter(line.lstrip().startswith, EVERY_NAME))) :]
            page.append(name + draw(st.sampled_from(parts)) + rest)
        page += draw(st.lists(st.sampled_from(["", "  ", "#", "# a comment", "# EOF", "#comment"]), max_size=2))
        page += draw(st.lists(valid_lines(), max_size=2))
    return "\n".join(page) + draw(st.sampled_from(["\n", ""]))


def by_the_real_parser(text: str) -> list[Sample]:
    return [
        Sample(sample.name, sample.labels, float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in WANTED
    ]


def same(ours: list[Sample], theirs: list[Sample]) -> bool:
    """Equal, with NaN equal to itself and -0 to 0."""

    def spelled(samples: list[Sample]) -> list[str]:
        return [repr((name, dict(labels), value + 0.0)) for name, labels, value in samples]

    return spelled(ours) == spelled(theirs)


@FUZZ
@given(valid_pages(), st.integers(1, 200))
def test_every_valid_page_reads_as_the_real_parser_reads_it(text: str, cut: int) -> None:
    """Names, labels, values, order: equal to prometheus_client's, at first sight and from memory, however cut."""
    expected = by_the_real_parser(text)
    parser = PageParser()
    body = text.encode()
    for _ in range(3):
        assert same(list(parser.parse(body[at : at + cut] for at in range(0, len(body), cut))), expected)
        assert parser.malformed == 0


@FUZZ
@given(st.lists(pieces, max_size=14).map("".join))
def test_a_line_reads_as_the_real_parser_reads_it_or_not_at_all(text: str) -> None:
    """Of a line the real parser accepts we read the same; one it refuses is left out, now and from memory."""
    line = text.replace("\n", " ")
    try:
        expected = by_the_real_parser(line + "\n")
    except (ValueError, IndexError):
        expected = []
    parser = PageParser()
    for _ in range(2):
        assert same([sample for sample in parser.parse([line.encode()]) if sample.name in WANTED], expected)


@FUZZ
@given(st.lists(st.one_of(st.binary(max_size=60), valid_lines().map(str.encode)), max_size=20).map(b"\n".join))
def test_any_bytes_are_read_without_a_fault(body: bytes) -> None:
    """Nothing but samples comes out, no value of a reading is impossible, and repetition changes nothing."""
    parser = PageParser()
    first = list(parser.parse([body]))
    malformed = parser.malformed
    assert same(list(parser.parse([body])), first)
    assert parser.malformed == malformed <= body.count(b"\n") + 1
    for engine in assemble(first, 0.0):
        for value in (engine.kv_usage, engine.cpu_kv_usage):
            assert value is None or 0 <= value <= 1
        for value in (engine.running, engine.waiting, engine.preemptions, engine.finished):
            assert value is None or 0 <= value < math.inf
        if engine.prompt_lengths is not None:
            assert list(engine.prompt_lengths.bounds) == sorted(set(engine.prompt_lengths.bounds))
            assert list(engine.prompt_lengths.counts) == sorted(engine.prompt_lengths.counts)


@pytest.mark.parametrize("name", ["vllm-0.32-one-engine-full.prom", "vllm-0.32-dp2-running.prom"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_page_that_lost_or_gained_bytes_keeps_its_other_lines(name: str, data: st.DataObject) -> None:
    """Bytes cut out of a real page and others put in cost the lines they touch and no more."""
    body = exposition(name).encode()
    at = data.draw(st.integers(0, len(body) - 1))
    end = min(len(body), at + data.draw(st.integers(0, 300)))
    put = data.draw(st.binary(max_size=30).filter(lambda put: b"\n" not in put))
    before, after = body[:at], body[end:]
    touched = before.rpartition(b"\n")[2] + put + after.partition(b"\n")[0]
    untouched = body[: at - len(before.rpartition(b"\n")[2])] + after.partition(b"\n")[2]
    expected = [*WARM.parse([untouched]), *WARM.parse([touched])]
    assert sorted(map(repr, WARM.parse([before + put + after]))) == sorted(map(repr, expected))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_lines_that_move_between_pages_are_read_as_if_seen_for_the_first_time(data: st.DataObject) -> None:
    """Where a line stood on the page before is a place to look first, and never changes what is read."""
    lines = exposition("vllm-0.32-dp2-running.prom").encode().split(b"\n")[:-1]
    parser = PageParser()
    for _ in range(3):
        at, end = sorted(data.draw(st.tuples(st.integers(0, len(lines)), st.integers(0, len(lines)))))
        taken = lines[at:end]
        change = data.draw(st.sampled_from(["leave out", "move", "swap", "repeat", "new values"]))
        page = {
            "leave out": lines[:at] + lines[end:],
            "move": lines[:at] + lines[end:] + taken,
            "swap": lines[:at] + taken[::-1] + lines[end:],
            "repeat": lines[:end] + taken + lines[end:],
            "new values": [line.rpartition(b" ")[0] + b" 7" if line[:1] != b"#" else line for line in lines],
        }[change]
        body = b"\n".join(page) + b"\n"
        assert same(list(parser.parse([body])), list(PageParser().parse([body])))
        assert parser.recognised == bool(page)
        assert parser.malformed == 0


@FUZZ
@given(st.lists(st.binary(max_size=50), max_size=20))
def test_lines_are_those_of_the_whole(chunks: list[bytes]) -> None:
    """Cutting a page into chunks changes none of its lines, and none is longer than allowed."""
    assert [line for lines in lines_by_chunk(chunks) for line in lines] == b"".join(chunks).split(b"\n")


@pytest.mark.parametrize(
    "body",
    [
        b"{" * 60_000,
        b'"' * 60_000,
        b"\\" * 60_000,
        b"vllm:num_requests_running{" + b'a="' * 20_000,
        b"vllm:num_requests_running{" + b'a="1",' * 10_000 + b"} 1",
        b'vllm:num_requests_running{model_name="' + b"\\" * 60_000 + b'"} 1',
        b"# TYPE " + b'"' * 60_000,
        (b'vllm:num_requests_running{model_name="' + b"\\\\" * 400 + b'"} 1\n') * 200,
    ],
    ids=["braces", "quotes", "backslashes", "open labels", "many labels", "long value", "comment", "escaped names"],
)
def test_no_line_takes_for_ever(body: bytes) -> None:
    """Lines made to be slow to parse are given up before they cost a tick."""
    parser = PageParser()
    begun = time.process_time()
    list(parser.parse([body]))
    assert time.process_time() - begun < 2


def test_the_start_of_the_process_is_not_an_engines() -> None:
    """The one name beside vLLM's is none of the names that make a reading."""
    assert PROCESS_START not in WANTED
    assert page.MAX_LINE_BYTES > 1300
