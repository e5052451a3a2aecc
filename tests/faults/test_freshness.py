"""What is shown while no tick ends, and where a name cannot be listened on."""

import threading
import time
from pathlib import Path

import httpx
import pytest

from exporter.cli import main
from exporter.freshness import Freshness
from exporter.snapshot import Snapshot
from exporter.watch import ServerWatch
from tests.support import pages
from tests.support.daemon import running
from tests.support.expositions import exposition

PAGE = exposition("vllm-0.32-one-engine-full.prom")


def test_what_was_read_too_long_ago_is_not_shown_as_present(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a tick hangs every source is down as `stale`, engines are unknown, ages grow; with its end all is back."""
    release = threading.Event()
    release.set()
    read = ServerWatch.read
    monkeypatch.setattr(ServerWatch, "read", lambda watch: (release.wait(30), read(watch))[1])
    with pages.PageServer(pages.answer(PAGE)) as server, running(server.url, vllm_timeout_seconds="2") as exporter:
        before = exporter.page(ticks=2)
        assert before.values("kv_used_ratio")
        release.clear()
        end = time.monotonic() + 20
        while not (page := exporter.page()).values("source_down_reason", source="vllm", reason="stale"):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert set(page.values("source_up").values()) == {0.0}
        assert page.state() == "unknown"
        assert not page.values("kv_used_ratio")
        assert page.values("forecasts_total") == before.values("forecasts_total")
        assert page.value("source_age_seconds", source="vllm") or 0 > 0.5
        assert httpx.get(f"{exporter.daemon.url}/readyz").status_code == 503
        release.set()
        after = exporter.page(ticks=2)
        assert after.value("source_up", source="vllm") == 1
        assert after.values("kv_used_ratio") == before.values("kv_used_ratio")


def test_a_snapshot_is_the_same_object_until_there_is_another_to_show() -> None:
    """The page is made once for each: a fresh one is handed on as it is, an old one is made anew once a second."""
    now = [0.0]
    snapshot = Snapshot(time=0.0, wall_time=0.0, duration_seconds=0.0, ticks=1)
    latest = Freshness(lambda: snapshot, lambda: now[0], 5.0)
    assert latest() is snapshot
    now[0] = 6.0
    aged = latest()
    assert aged is not snapshot
    now[0] = 6.5
    assert latest() is aged
    now[0] = 7.5
    assert latest() is not aged
    assert latest() is not None


def test_a_name_to_listen_on_that_nobody_knows_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It is wrong use, told with the address and the way out."""
    flags = ["--listen", "no-such-host.invalid:0", "--gpus", "none", "--host", "none", "--proc-dir", str(tmp_path)]
    assert main(["run", *flags]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "cannot listen" in line]
    assert "no-such-host.invalid" in line
    assert "--listen" in line
