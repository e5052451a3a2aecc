"""The rules of the house that a reader of the imports can check."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "exporter"
MODULES = sorted(PACKAGE.rglob("*.py"))
ORDER = ("sources", "kv", "forecast")
"""Left of the monitor: none of these imports what stands to its right."""
RIGHT_OF_ALL = {"monitor", "metrics", "server", "routes", "web", "run", "assembly", "watch", "memory", "snapshot"}
IMPURE = {"httpx", "time", "socket", "threading", "asyncio", "subprocess", "requests", "random"}


def imports(path: Path) -> set[str]:
    """Every module that `path` imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def parts(path: Path) -> set[str]:
    """The parts of this package that `path` imports, by the first name below `exporter`."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("exporter.")}


@pytest.mark.parametrize("part", ORDER)
def test_nothing_on_the_left_imports_what_is_to_its_right(part: str) -> None:
    """Data flows one way: sources, arithmetic and forecast know nothing of monitor, metrics and server."""
    for path in (PACKAGE / part).rglob("*.py"):
        assert not parts(path) & RIGHT_OF_ALL, path
    for path in (PACKAGE / "sources").rglob("*.py"):
        assert not parts(path) & {"kv", "forecast"}, path
    for path in (PACKAGE / "kv").rglob("*.py"):
        assert "forecast" not in parts(path), path


@pytest.mark.parametrize("part", ["kv", "forecast"])
def test_arithmetic_and_forecast_are_pure(part: str) -> None:
    """They import no clock, network, thread or source, so that they can be used as a library and replayed."""
    for path in (PACKAGE / part).rglob("*.py"):
        assert not {name.split(".")[0] for name in imports(path)} & IMPURE, path
        assert "sources" not in parts(path), path


def test_one_module_imports_pynvml() -> None:
    """NVML's library is behind one door."""
    assert [path.name for path in MODULES if "pynvml" in imports(path)] == ["nvml.py"]


def test_modules_stay_small() -> None:
    """No module is longer than 300 lines."""
    long = {path.name: count for path in MODULES if (count := len(path.read_text().splitlines())) > 300}
    assert not long


def test_the_daemon_imports_nothing_it_does_not_need() -> None:
    """No module of the daemon's path imports the terminal library at its top level."""
    for path in MODULES:
        if path.is_relative_to(PACKAGE / "demo") or path.is_relative_to(PACKAGE / "top"):
            continue
        body = ast.parse(path.read_text()).body
        top = {alias.name for node in body if isinstance(node, ast.Import) for alias in node.names}
        top |= {node.module for node in body if isinstance(node, ast.ImportFrom) and node.module}
        assert not any(name.split(".")[0] == "rich" for name in top), path
