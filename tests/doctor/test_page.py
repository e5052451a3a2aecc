"""What doctor says of our own page."""

from pathlib import Path

import pytest

from exporter.doctor.page import page_findings
from exporter.settings import load
from tests.guard.files import TLS, Files, users


@pytest.mark.parametrize(("listen", "cost"), [("127.0.0.1:9488", ""), ("[::1]:1", ""), ("0.0.0.0:9488", "whoever")])
def test_an_open_page_is_a_note(listen: str, cost: str) -> None:
    """Without protection the page is open: on loopback that is all, elsewhere it costs something."""
    (found,) = page_findings(load({"listen": listen}))
    assert found.level == "note"
    assert found.cost.startswith(cost)
    assert bool(found.change) == bool(found.cost) == bool(cost)


def test_a_protected_page_is_told_by_what(tmp_path: Path) -> None:
    """A web config that is fit is told in a few words, none of them secret."""
    config = Files(tmp_path).config(TLS + users(alice="secret"))
    (found,) = page_findings(load({"web_config_file": str(config)}))
    assert (found.level, found.seen) == ("ok", "127.0.0.1:9488 would be protected by: TLS, passwords")


def test_an_unfit_file_is_a_fault(tmp_path: Path) -> None:
    """What would stop the daemon's start is a fault that names file and rule."""
    files = Files(tmp_path)
    files.cert.write_text("x")
    (found,) = page_findings(load({"web_config_file": str(files.config(TLS))}))
    assert found.level == "fault"
    assert "must be PEM files" in found.seen
