"""Options that all tests share."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


class Golden:
    """Compares a text with a committed file, or writes the file when told to."""

    def __init__(self, *, update: bool) -> None:
        self._update = update

    def check(self, file: Path, text: str) -> None:
        if self._update:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        assert file.exists(), f"{file.name} is missing: make it with pytest --update-golden and read what it says"
        assert text == file.read_text()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(update=request.config.getoption("--update-golden"))
