"""A backtest on the history of a real Prometheus server."""

import itertools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.backtest import main
from exporter.cli import main as cli
from exporter.sources.endpoint import Access, Endpoint
from exporter.sources.prometheus import SOURCE, History
from exporter.sources.recording import Recording
from tests.grafana.stack import prometheus
from tests.support.tools import tool

REAL = Path(__file__).parent.parent / "data" / "forecast" / "real-cpu-burst.jsonl.gz"
QUIET_SECONDS, GAP_SECONDS = 150, 40
BEGAN = float(int(time.time()) - 3600)


def openmetrics() -> str:
    """A server idle for minutes, then not scraped for a while, then the recorded burst; every sample with its time."""
    raw: dict[str, list[tuple[float, float]]] = {}
    state: dict[str, float] = {}
    for time_, changed in _scrapes():
        if not state:
            for early in range(-QUIET_SECONDS - GAP_SECONDS, -GAP_SECONDS):
                for series, value in changed.items():
                    raw.setdefault(series, []).append((float(early), value))
        state |= changed
        for series, value in state.items():
            raw.setdefault(series, []).append((time_, value))
    lines = []
    for series, samples in sorted(raw.items()):
        name, _, labels = series.partition("{")
        target = f'{name}{{job="vllm",instance="10.0.0.1:8000",{labels}'
        lines += [f"{target} {value} {BEGAN + QUIET_SECONDS + GAP_SECONDS + at:.3f}" for at, value in samples]
    return "\n".join([*lines, "# EOF", ""])


def _scrapes() -> Iterator[tuple[float, dict[str, float]]]:
    import gzip
    import json

    with gzip.open(REAL, "rt") as lines:
        for line in lines:
            record = json.loads(line)
            if "s" in record:
                yield float(record["t"]), {k: float(v) for k, v in record["s"].items()}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("history")
    file = home / "history.om"
    file.write_text(openmetrics())
    data = home / "prometheus" / "data"
    subprocess.run(
        [tool("promtool", "prometheus"), "tsdb", "create-blocks-from", "openmetrics", str(file), str(data)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    with prometheus(home / "prometheus", {}) as url:
        yield url


def test_every_scrape_comes_back_at_its_own_time(server: str) -> None:
    """Raw samples keep their times: no grid, no value made up in the gap, the same readings as from the recording."""
    endpoint = Endpoint(SOURCE, server, Access(timeout_seconds=30))
    scrapes = list(History(endpoint).scrapes(BEGAN - 60, BEGAN + 400))
    endpoint.close()
    recorded = [engines[0] for _, engines in Recording(REAL).readings()]
    assert len(scrapes) == QUIET_SECONDS + len(recorded)
    last = scrapes[-1].engines[0]
    assert last.generation_lengths == recorded[-1].generation_lengths
    assert last.cache is not None
    assert recorded[-1].cache is not None
    assert last.cache.num_gpu_blocks == recorded[-1].cache.num_gpu_blocks
    steps = [b.time - a.time for a, b in itertools.pairwise(scrapes)]
    assert max(steps) == pytest.approx(GAP_SECONDS + 1, abs=0.1)
    assert {scrape.target for scrape in scrapes} == {"vllm/10.0.0.1:8000"}


def test_a_history_is_scored_and_its_onsets_are_drawn(server: str, tmp_path: Path) -> None:
    """The report holds the score table and a timeline of the onset, and loads nothing from elsewhere."""
    report = tmp_path / "report.html"
    argv = ["--prometheus", server, "--start", str(BEGAN), "--end", str(BEGAN + 400), "--report", str(report)]
    assert main([*argv, "--bar-recall", "0", "--bar-precision", "0", "--bar-calm", "1"]) == 0
    page = report.read_text()
    assert page.count("<svg") == 1
    assert "usage &gt; 0.9, 15 s, for 1m" in page
    assert "http://" not in page.replace(server, "")
    assert "<script" not in page


def test_a_forecast_under_its_bar_is_bad_news(server: str) -> None:
    """Exit code 1 when the bar is not reached."""
    argv = ["--prometheus", server, "--start", str(BEGAN), "--end", str(BEGAN + 400)]
    assert main([*argv, "--bar-recall", "1.1"]) == 1


def test_a_server_without_vllm_is_refused_with_a_reason(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to score is wrong use: exit code 2 and one line that says what is missing."""
    argv = ["backtest", "--prometheus", server, "--start", str(BEGAN - 7200), "--end", str(BEGAN - 3600)]
    assert cli(argv) == 2
    told = capsys.readouterr().err
    assert "no vLLM series" in told
    assert told.count("\n") == 1


def test_a_server_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A refused connection ends with exit code 2 and one line."""
    assert cli(["backtest", "--prometheus", "http://127.0.0.1:9", "--start", "1", "--end", "2"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
