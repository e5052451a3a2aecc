"""Our own writing of the page against prometheus_client's."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from exporter.exposition import Exposition
from exporter.metrics import TABLE, Family, SnapshotCollector
from exporter.routes import MetricsPage
from exporter.server import Request
from exporter.snapshot import Snapshot
from tests.support.snapshots import full_engine, full_snapshot

TEXT = ""
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
FORMS = [
    TEXT,
    "text/plain;version=0.0.4",
    "text/plain;version=1.0.0;escaping=allow-utf-8",
    "text/plain;version=1.0.0;escaping=dots",
    OPENMETRICS,
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8",
    "application/openmetrics-text;version=1.0.0;escaping=values",
]
"""What a client may accept; Prometheus 2 and 3 by default, and with its name schemes set otherwise."""

HOSTILE = 'a "model"\\ of\nmany } lines # and é, {le="1"}'


def theirs(collector: Collector, accept: str) -> str:
    """What prometheus_client writes of what `collector` collects."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    encode, _ = choose_encoder(accept)
    return encode(registry).decode()


@pytest.mark.parametrize("accept", FORMS)
def test_a_full_page_is_letter_for_letter_what_prometheus_client_writes(accept: str) -> None:
    """In every form that a client may ask for, hostile names included, only the process's own numbers differ."""
    snapshot = full_snapshot((full_engine("0", server="h:1"), full_engine("1", server="h:2", model_name=HOSTILE)))
    page = MetricsPage(lambda: snapshot)(Request("GET", "/metrics", "", {"accept": accept})).body.decode()
    whole = theirs(SnapshotCollector(lambda: snapshot), accept)
    expected, end = whole.removesuffix("# EOF\n"), "# EOF\n" if whole.endswith("# EOF\n") else ""
    assert page.startswith(expected)
    process = page.removeprefix(expected)
    assert "process_" in process.replace("__", "_")
    assert "headroom" not in process
    assert process.endswith(end)


class One(Collector):
    """One family of one snapshot, as the page's collector hands it on."""

    def __init__(self, family: Family, snapshot: Snapshot) -> None:
        self._family, self._snapshot = family, snapshot

    def collect(self) -> Iterator[Metric]:
        metric = self._family.collect(self._snapshot)
        if metric.samples:
            yield metric


@given(
    st.lists(st.tuples(st.dictionaries(st.sampled_from(["b", "a", "le_1"]), st.text()), st.floats()), max_size=4),
    st.sampled_from(["gauge", "counter", "summary"]),
    st.text(),
    st.booleans(),
)
def test_any_labels_help_and_value_are_written_alike(
    samples: list[tuple[dict[str, str], float]], kind: str, text: str, openmetrics: bool
) -> None:
    """Whatever a label, a help text or a number holds, both write the same, and again on the next page."""
    samples = [({name: value.encode("utf-8", "replace").decode() for name, value in s.items()}, v) for s, v in samples]
    name = "x_total" if kind == "counter" else "x"
    family = Family(name, kind, text.encode("utf-8", "replace").decode(), (lambda _: iter(samples),), ("a", "b"))  # type: ignore[arg-type]
    snapshot = full_snapshot()
    expected = theirs(One(family, snapshot), OPENMETRICS if openmetrics else TEXT).removesuffix("# EOF\n")
    exposition = Exposition()
    for _ in ("anew", "from memory"):
        assert exposition.written([family], snapshot, openmetrics=openmetrics) == expected


def test_before_the_first_tick_the_page_is_the_processs_own() -> None:
    """A page without a snapshot is whole and has no family of ours."""
    page = MetricsPage(lambda: None)(Request("GET", "/metrics", "", {"accept": OPENMETRICS})).body.decode()
    assert "vllm_headroom" not in page
    assert page.endswith("# EOF\n")


def test_the_table_is_written_whole() -> None:
    """Of a snapshot in which everything is known every family is written, in the table's order."""
    text = Exposition().written(TABLE, full_snapshot(), openmetrics=False)
    assert [line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE ")] == [f.name for f in TABLE]
