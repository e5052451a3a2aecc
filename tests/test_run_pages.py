"""The main job end to end: a page of a real vLLM in, our page out."""

from pathlib import Path

import pytest

from exporter.assembly import build_monitor
from exporter.routes import MetricsPage
from exporter.server import Request
from exporter.settings import load
from tests.conftest import Golden
from tests.support.daemon import Page, running
from tests.support.pages import PageServer, answer

DATA = Path(__file__).parent / "data"
PAGES = sorted((DATA / "expositions").glob("vllm-*.prom"))


class Clock:
    """A clock that only its owner moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def exported(page: str, ticks: int) -> str:
    """Our page after `ticks` ticks, a second apart, beside a server that shows `page`."""
    clock = Clock()
    with PageServer(answer(page)) as server:
        server.routes["/v1/models"] = answer((DATA / "expositions" / "vllm-0.32-v1-models.json").read_text())
        settings = load({"vllm_url": server.url, "gpus": "none", "host": "none"})
        monitor = build_monitor(settings, clock, lambda: 1_795_980_000.0)
        for _ in range(ticks):
            monitor.tick()
            clock.now += 1.0
        monitor.close()
        text = MetricsPage(lambda: monitor.latest)(Request("GET", "/metrics", "", {})).body.decode()
    kept = (line for line in text.splitlines() if "process_" not in line and "_build_info{" not in line)
    return "\n".join(kept) + "\n"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_real_page_gives_the_golden_page(path: Path, golden: Golden) -> None:
    """Ten seconds beside each recorded server give the committed page, sample for sample."""
    golden.check(DATA / "golden" / path.name, exported(path.read_text(), ticks=10))


def test_two_engines_are_told_apart_and_nothing_is_summed() -> None:
    """Each engine has its own usage and the capacity that it reports: 148,336 tokens, not blocks × block size."""
    page = Page(exported((DATA / "expositions" / "vllm-0.32-two-engines.prom").read_text(), ticks=2))
    assert page.value("kv_used_ratio", engine="0") == pytest.approx(0.42)
    assert page.value("kv_used_ratio", engine="1") == pytest.approx(0.82)
    for engine in ("0", "1"):
        assert page.value("kv_capacity_tokens", engine=engine, source="engine") == 148_336
    everything = [value for series in page.values("kv_capacity_tokens").values() for value in [series]]
    assert 1_186_688 not in everything
    assert 296_672 not in everything
    assert {dict(labels)["engine"] for _, labels in page.values("kv_used_ratio")} == {"0", "1"}


def test_an_engine_before_its_first_report_is_unknown_not_empty() -> None:
    """Two engines that have shown counters but no gauges have no usage and no headroom; their state says unknown."""
    page = Page(exported((DATA / "expositions" / "vllm-0.32-dp2-just-started.prom").read_text(), ticks=2))
    assert not page.values("kv_used_ratio")
    assert not page.values("kv_tokens")
    assert not page.values("oom_probability")
    assert (page.state("0"), page.state("1")) == ("unknown", "unknown")


def test_several_servers_are_told_apart_by_a_label() -> None:
    """Two servers of one pod with the same model and engine do not collide, and one being down leaves the other."""
    body = (DATA / "expositions" / "vllm-0.32-one-engine-full.prom").read_text()
    with PageServer(answer(body)) as one, PageServer(answer(body)) as two, running(one.url, two.url) as exporter:
        page = exporter.page(ticks=2)
        names = {f"127.0.0.1:{server.port}" for server in (one, two)}
        assert {dict(labels)["server"] for _, labels in page.values("kv_used_ratio")} == names
        two.close()
        page = exporter.page(ticks=3)
        assert page.value("source_up", source="vllm", server=f"127.0.0.1:{one.port}") == 1
        assert page.value("source_up", source="vllm", server=f"127.0.0.1:{two.port}") == 0
        assert {dict(labels)["server"] for _, labels in page.values("kv_used_ratio")} == {f"127.0.0.1:{one.port}"}


def test_one_request_a_tick_over_one_connection() -> None:
    """The server is asked for its page once a tick, by GET, over a kept connection; for its models once."""
    body = (DATA / "expositions" / "vllm-0.32-one-engine-quiet.prom").read_text()
    with PageServer(answer(body)) as server, running(server.url) as exporter:
        exporter.page(ticks=5)
        ticks = exporter.daemon.monitor.latest
        seen = list(server.requests)
        assert ticks is not None
        assert server.connections == 1
        assert {request.method for request in seen} == {"GET"}
        assert abs(sum(request.path == "/metrics" for request in seen) - ticks.ticks) <= 1
        assert sum(request.path == "/v1/models" for request in seen) == 1
