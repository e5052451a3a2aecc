"""A real browser, and pages served to it over loopback."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from exporter.routes import Routes
from exporter.server import HttpServer
from tests.support.tools import tool
from tests.web.scenes import Scene

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
"""Where the tests leave what they saw."""

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Site:
    """The exporter's pages over a scene that a test may change; its clock stands still."""

    def __init__(self, made: Scene, port: int = 0) -> None:
        self.scene = made
        routes = Routes(lambda: self.scene.snapshot, made.history, lambda: self.scene.snapshot.time + 0.3, 8.0)
        self.server = HttpServer("127.0.0.1", port, routes)

    @property
    def url(self) -> str:
        return f"{self.server.url}/"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    chromium = tool("chromium", "chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Scene], Site]]:
    """Serves a scene until the test ends."""
    with ExitStack() as sites:

        def start(made: Scene) -> Site:
            site = Site(made)
            sites.enter_context(site.server)
            return site

        yield start
