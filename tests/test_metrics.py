"""The table of families and the page it makes."""

import re
import subprocess
import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from exporter.metrics import TABLE
from exporter.routes import MetricsPage
from exporter.server import Request
from tests.support.snapshots import full_snapshot
from tests.support.tools import tool

ROOT = Path(__file__).parent.parent


def page(accept: str = "") -> str:
    snapshot = full_snapshot()
    return MetricsPage(lambda: snapshot)(Request("GET", "/metrics", "", {"accept": accept})).body.decode()


def test_every_family_of_the_table_reaches_the_page() -> None:
    """A snapshot in which everything is known gives samples of every family; nothing else of ours is on the page."""
    names = {line.split(" ")[2] for line in page().splitlines() if line.startswith("# TYPE vllm_headroom_")}
    assert names == {family.name for family in TABLE}


def test_samples_carry_only_the_labels_the_table_names() -> None:
    """The reference page's labels are the page's labels."""
    labels = {family.name: set(family.labels) | {"server"} for family in TABLE}
    for family in text_string_to_metric_families(page()):
        for sample in family.samples:
            if sample.name.startswith("vllm_headroom_"):
                assert set(sample.labels) <= labels[sample.name], sample.name


def test_names_and_help_follow_the_conventions() -> None:
    """Counters end in _total, nothing else does; help is a sentence; names are unique."""
    assert len({family.name for family in TABLE}) == len(TABLE)
    for family in TABLE:
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        assert re.fullmatch(r"[A-Z0-9].*\.|.*; always 1\.", family.help), family.help


def test_promtool_finds_nothing_to_say() -> None:
    """`promtool check metrics` accepts the full page without a remark."""
    done = subprocess.run(
        [tool("promtool", "prometheus"), "check", "metrics"], input=page().encode(), capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_openmetrics_is_served_when_asked_for() -> None:
    """The OpenMetrics form holds the same series and ends as that form must."""
    text = page("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    series = {line.rsplit(" ", 1)[0] for line in page().splitlines() if line.startswith("vllm_headroom_")}
    assert series == {line.rsplit(" ", 1)[0] for line in text.splitlines() if line.startswith("vllm_headroom_")}


def test_the_reference_pages_are_made_from_the_tables() -> None:
    """docs/metrics.md and docs/settings.md are what docs/build.py makes now."""
    done = subprocess.run([sys.executable, ROOT / "docs/build.py", "--check"], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout.decode()
