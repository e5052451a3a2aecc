"""What a page says that it cannot mean, and servers and engines that come and go; faults: tests/faults."""

import math
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.daemon import running

EXPOSITIONS = Path(__file__).parent / "data" / "expositions"
FULL = (EXPOSITIONS / "vllm-0.32-one-engine-full.prom").read_text()


def test_a_server_that_is_not_there_yet() -> None:
    """Started before its server, the exporter serves its page and finds the server once it comes."""
    with pages.PageServer(pages.answer(FULL)) as server:
        url = server.url
    with running(url) as exporter:
        page = exporter.page(ticks=2)
        assert page.values("source_down_reason", source="vllm", reason="refused")
        assert not page.values("state")


def test_a_redirect_is_not_followed() -> None:
    """Where a redirect points to is never asked."""
    with (
        pages.PageServer(pages.answer(FULL)) as elsewhere,
        pages.PageServer(pages.redirect(f"{elsewhere.url}/metrics")) as server,
        running(server.url) as exporter,
    ):
        exporter.page(ticks=3)
        assert not elsewhere.requests


def test_values_that_are_no_numbers_are_absent() -> None:
    """NaN and +Inf on the page give no sample of ours: ratios stay within 0..1 and nothing is infinite."""
    usage = next(line for line in FULL.splitlines() if line.startswith("vllm:kv_cache_usage_perc{"))
    running_line = next(line for line in FULL.splitlines() if line.startswith("vllm:num_requests_running{"))
    body = FULL.replace(usage, usage.rsplit(" ", 1)[0] + " NaN").replace(
        running_line, running_line.rsplit(" ", 1)[0] + " +Inf"
    )
    with pages.PageServer(pages.answer(body)) as server, running(server.url) as exporter:
        page = exporter.page(ticks=3)
        assert page.value("source_up", source="vllm") == 1
        assert not page.values("kv_used_ratio")
        assert page.state() == "unknown"
        assert all(math.isfinite(value) for value in page.values("requests").values())


def test_a_duplicated_series_is_counted_once() -> None:
    """A page that repeats itself says the same as one that does not."""
    with pages.PageServer(pages.answer(FULL + FULL)) as server, running(server.url) as exporter:
        twice = exporter.page(ticks=2)
    with pages.PageServer(pages.answer(FULL)) as server, running(server.url) as exporter:
        once = exporter.page(ticks=2)
    for name in ("kv_used_ratio", "kv_used_blocks", "requests", "kv_capacity_tokens"):
        assert twice.values(name) == once.values(name)


def test_counters_that_start_anew_give_no_rate() -> None:
    """After a restart of the server no rate is negative and none is invented."""
    later = FULL.replace("num_preemptions_total{", "num_preemptions_total{", 1)
    high = _with_preemptions(later, 500)
    with pages.PageServer(pages.answer(high)) as server, running(server.url) as exporter:
        exporter.page(ticks=3)
        server.behaviour = pages.answer(_with_preemptions(FULL, 1))
        page = exporter.page(ticks=3)
        rate = page.value("preemptions_per_second")
        assert rate is None or 0 <= rate < 5


def _with_preemptions(page: str, count: int) -> str:
    lines = page.splitlines()
    changed = [
        f"{line.rsplit(' ', 1)[0]} {count}" if line.startswith("vllm:num_preemptions_total{") else line
        for line in lines
    ]
    assert changed != lines
    return "\n".join(changed) + "\n"


def test_an_engine_that_vanishes_is_unknown_and_one_that_appears_is_followed() -> None:
    """Of two engines, the one that leaves the page is unknown without figures; its return is seen at once."""
    both = (EXPOSITIONS / "vllm-0.32-two-engines.prom").read_text()
    one = "".join(line for line in both.splitlines(keepends=True) if 'engine="1"' not in line)
    with pages.PageServer(pages.answer(one)) as server, running(server.url) as exporter:
        assert not exporter.page(ticks=2).values("state", engine="1")
        server.behaviour = pages.answer(both)
        assert exporter.page(ticks=2).value("kv_used_ratio", engine="1") == pytest.approx(0.82)
        server.behaviour = pages.answer(one)
        page = exporter.page(ticks=2)
        assert page.state("1") == "unknown"
        assert not page.values("kv_used_ratio", engine="1")
        assert page.value("kv_used_ratio", engine="0") == pytest.approx(0.42)
