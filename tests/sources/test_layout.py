"""What is worked out once of a page's layout never changes what is read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.sources.engines import assemble
from exporter.sources.layout import Assembler, Layout
from exporter.sources.page import PageParser
from exporter.sources.samples import Sample
from exporter.sources.vllm_names import PREFIXES
from tests.support.expositions import PAGES, exposition, many_engines
from tests.support.releases import RELEASES, page_of

VALUES = [b"0", b"1", b"7", b"0.5", b"NaN", b"-1", b"+Inf", b"1e308"]


def sorted_alike(pages: list[bytes]) -> None:
    parser, assembler = PageParser(), Assembler()
    for time, page in enumerate(pages):
        samples = list(parser.parse([page]))
        assert assembler.readings(samples, float(time)) == assemble(samples, float(time))


@pytest.mark.parametrize("text", [*map(exposition, PAGES), *map(page_of, RELEASES)], ids=[*PAGES, *RELEASES])
def test_a_page_reads_the_same_the_second_time(text: str) -> None:
    """Of every recorded page and of every release, with several front-ends, replicas and old names beside new ones."""
    sorted_alike([text.encode()] * 3)


def test_most_pages_are_laid_out_as_the_one_before() -> None:
    """A page with other values needs no sorting: its layout holds."""
    page = many_engines(3).encode()
    parser = PageParser()
    first = list(parser.parse([page]))
    layout = Layout.of(first, PREFIXES)
    assert layout is not None
    later = list(parser.parse([page.replace(b"} 0.0", b"} 1.0")]))
    assert later != first
    assert layout.holds(later, [sample.value for sample in later])
    assert not layout.holds(later[1:], [sample.value for sample in later[1:]])
    strangers = [Sample(name, dict(labels), value) for name, labels, value in later]
    assert not layout.holds(strangers, [sample.value for sample in strangers])


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_changes_on_a_page_it_is_read_as_if_it_were_the_first(data: st.DataObject) -> None:
    """Values that cannot be, lines that go, move or stand there twice."""
    name = data.draw(st.sampled_from(["vllm-0.32-dp2-running.prom", "vllm-0.32-two-api-servers.prom"]))
    wanted = [line for line in exposition(name).encode().split(b"\n") if list(PageParser().parse([line]))]
    pages = [wanted]
    for _ in range(data.draw(st.integers(1, 4))):
        page = list(pages[data.draw(st.integers(0, len(pages) - 1))])
        at = data.draw(st.integers(0, len(page) - 1))
        match data.draw(st.sampled_from(["value", "values", "leave", "move", "repeat"])):
            case "value":
                page[at] = page[at].rpartition(b" ")[0] + b" " + data.draw(st.sampled_from(VALUES))
            case "values":
                page = [line.rpartition(b" ")[0] + b" 1" for line in page]
            case "leave" if len(page) > 1:
                del page[at]
            case "move":
                page.insert(data.draw(st.integers(0, len(page) - 1)), page.pop(at))
            case _:
                page.insert(at, page[at].rpartition(b" ")[0] + b" " + data.draw(st.sampled_from(VALUES)))
        pages.append(page)
    sorted_alike([b"\n".join(page) + b"\n" for page in [*pages, *pages]])
