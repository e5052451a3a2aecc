"""docs/security.md says what the web config reads and refuses."""

import re
from pathlib import Path

import pytest

from exporter.errors import SettingsError
from exporter.guard import web_config
from exporter.guard.passwords import MAX_WAITING
from exporter.guard.web_config import read_web_config
from tests.guard.files import TLS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "security.md").read_text()


def test_the_example_is_a_web_config(tmp_path: Path) -> None:
    """What people copy from the page is read as it stands."""
    (example,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "web.yml").write_text(example)
    found = read_web_config(tmp_path / "web.yml", "X")
    assert found.tls is not None
    assert found.tls.client_required
    assert list(found.users) == ["prometheus"]


def _keys(row: str) -> list[str]:
    return re.findall(r"`([a-zA-Z0-9_.]+)`", row)


def test_every_key_is_on_the_page() -> None:
    """The page names every key that is served, and every key that is refused."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    (refused,) = [row for row in rows if "| refused, with the reason |" in row]
    tables = {**web_config._TOP, **web_config._TLS, **web_config._HTTP}
    told = {key.rpartition(".")[2] for row in rows for key in _keys(row)}
    assert {key for key in tables if key not in ("tls_server_config", "http_server_config")} <= told
    assert set(_keys(refused)) >= {key for key, reason in tables.items() if reason}
    assert not set(_keys(refused)) & {key for key, reason in tables.items() if not reason}


@pytest.mark.parametrize("kind", ["RequestClientCert", "RequireAnyClientCert"])
def test_kinds_that_are_refused_are_refused(kind: str, tmp_path: Path) -> None:
    """The two kinds of client authentication that the page calls refused are."""
    (tmp_path / "web.yml").write_text(TLS + f"  client_auth_type: {kind}\n")
    with pytest.raises(SettingsError, match="is not served"):
        read_web_config(tmp_path / "web.yml", "X")


def test_bounds_are_those_of_the_code() -> None:
    """The figures of the page are the code's."""
    assert f"{MAX_WAITING} may wait" in PAGE
    assert f"of a cost up to {web_config.MOST_ROUNDS}" in PAGE
