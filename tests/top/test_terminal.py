"""The live view in a real terminal: tmux runs it, keys are typed, the screen is read."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.routes import Routes
from exporter.server import HttpServer
from tests.support.tools import tool
from tests.web.scenes import SCENES

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0


class Terminal:
    """One tmux session of its own server."""

    def __init__(self, socket: Path) -> None:
        self._tmux = [tool("tmux", "tmux"), "-S", str(socket), "-f", "/dev/null"]

    def run(self, width: int, height: int, *arguments: str) -> None:
        command = f"{sys.executable} -m exporter top {' '.join(arguments)}; echo ended with $?; sleep 600"
        size = ["-x", str(width), "-y", str(height)]
        subprocess.run([*self._tmux, "new-session", "-d", *size, command], check=True, cwd=ROOT)

    def type(self, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def resize(self, width: int, height: int) -> None:
        subprocess.run([*self._tmux, "resize-window", "-x", str(width), "-y", str(height)], check=True)

    def screen(self) -> str:
        done = subprocess.run([*self._tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True)
        return done.stdout

    def shows(self, *parts: str) -> str:
        """The screen, once all of `parts` are on it."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not all(part in (screen := self.screen()) for part in parts):
            assert time.monotonic() < until, f"{parts} not on the screen:\n{screen}"
            time.sleep(0.1)
        return screen

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    started = Terminal(tmp_path / "tmux")
    yield started
    started.close()


@pytest.fixture
def export() -> Iterator[Callable[[str], str]]:
    """Serves a scene and tells where."""
    servers: list[HttpServer] = []

    def serve(name: str) -> str:
        made = SCENES[name]()
        routes = Routes(lambda: made.snapshot, made.history, lambda: made.snapshot.time + 0.3, 8.0)
        server = HttpServer("127.0.0.1", 0, routes)
        server.start()
        servers.append(server)
        return server.url.removeprefix("http://")

    yield serve
    for server in servers:
        server.close()


def test_one_engine_fits_a_plain_terminal(terminal: Terminal, export: Callable[[str], str]) -> None:
    """On 80 × 24 the verdict, what is left, the forecast, the drawing and the GPU are all in sight."""
    terminal.run(80, 24, export("predicted"))
    screen = terminal.shows("predicted  KV cache is predicted to run out in about 40 s", "GPU 0")
    for part in ("22,288 tokens", "87 % in 60 s", "100 % ╌", "−15 min", "+60 s", "2.4 GiB free", "q quit"):
        assert part in screen


def test_keys_choose_engine_and_window_and_leave(terminal: Terminal, export: Callable[[str], str]) -> None:
    """The worst engine is shown first; keys go to the others, change the window, and end with exit code 0."""
    terminal.run(100, 40, export("eight-engines"))
    terminal.shows("▶ engine 7", "Engine 7  meta-llama")
    terminal.type("Down")
    terminal.shows("▶ engine 0", "Engine 0  meta-llama")
    terminal.type("k")
    terminal.type("k")
    terminal.shows("▶ engine 6")
    terminal.type("4")
    terminal.shows("▶ engine 4", "Engine 4  meta-llama", "driven by a burst of requests")
    terminal.type("w")
    terminal.shows("past 60 s", "−60 s")
    terminal.type("q")
    terminal.shows("ended with 0")


def test_several_servers_and_one_that_is_gone(terminal: Terminal, export: Callable[[str], str]) -> None:
    """Engines of all servers stand in one list; a server that does not answer is named."""
    first, second = export("ok"), export("two-engines")
    terminal.run(120, 40, first, second, "127.0.0.1:1")
    terminal.shows(f"engine 0 @ {first}", f"▶ engine 1 @ {second}", "127.0.0.1:1: http://127.0.0.1:1/")


def test_the_view_follows_the_size_of_the_terminal(terminal: Terminal, export: Callable[[str], str]) -> None:
    """When the terminal grows there is room for more, and when it shrinks nothing breaks."""
    terminal.run(80, 24, export("watch"))
    terminal.shows("KV cache may run out")
    terminal.resize(140, 50)
    terminal.shows("9 in 10 ≤ 2,048", "alarms came true")
    terminal.resize(50, 10)
    terminal.shows("KV cache may run out", "tokens")
    terminal.type("q")
    terminal.shows("ended with 0")


def test_control_c_leaves_quietly(terminal: Terminal, export: Callable[[str], str]) -> None:
    """Ctrl-C ends the view without a traceback and gives the terminal back."""
    terminal.run(80, 24, export("ok"))
    terminal.shows("All right")
    terminal.type("C-c")
    screen = terminal.shows("ended with")
    assert "Traceback" not in screen
