"""The live view, drawn onto consoles of text."""

from io import StringIO

import pytest
from rich.console import Console

from exporter.top.board import Board
from exporter.top.feeds import Seen, printable
from exporter.top.view import View
from exporter.web.telling import tell
from tests.web.scenes import SCENES


def drawn(*names: str, width: int = 100, height: int = 40, board: Board | None = None) -> str:
    seen = []
    for number, name in enumerate(names):
        made = SCENES[name]()
        status = tell(made.snapshot, made.history, made.snapshot.time + 0.3, 8.0)
        seen.append(Seen(f"host-{number}:9488", printable(status), ""))
    console = Console(file=StringIO(), width=width, height=height, color_system=None)
    console.print(View(console, notes=("a note",)).draw(seen, board or Board()))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (20, 5)])
def test_every_state_can_be_drawn_on_any_screen(name: str, width: int, height: int) -> None:
    """No state of the world and no size of a terminal is without a view, and no line is wider than the screen."""
    text = drawn(name, width=width, height=height)
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("name", ["ok", "watch", "predicted", "exhausted", "stalled", "asleep", "unknown"])
def test_a_plain_terminal_shows_all_that_is_urgent(name: str) -> None:
    """On 80 × 24, verdict, figures, drawing and GPU fit without scrolling."""
    lines = drawn(name, width=80, height=24).splitlines()
    assert len(lines) <= 24
    text = "\n".join(lines)
    for part in (f" {name} ", "left", "load", "100 %", "+60 s", "GPU 0"):
        assert part in text


def test_the_chosen_engine_is_shown() -> None:
    """The pointer and the details follow the choice; without one they are at the worst engine."""
    assert "▶ engine 7" in drawn("eight-engines")
    text = drawn("eight-engines", board=Board(chosen=4))
    assert "▶ engine 4" in text
    assert "driven by a burst of requests" in text


def test_a_long_list_moves_with_the_choice() -> None:
    """With more engines than room, those around the chosen one are listed, and how many there are."""
    text = drawn("eight-engines", "eight-engines", "eight-engines", height=24, board=Board(chosen=20))
    assert "▶ engine 4 @ host-2:9488" in text
    assert "24 engines" in text
    assert "engine 0 @ host-0" not in text


def test_servers_that_do_not_answer_are_named() -> None:
    """A fault is told in its own words; before the first answer the view says what it waits for."""
    console = Console(file=StringIO(), width=100, height=30, color_system=None)
    seen = [Seen("a:9488"), Seen("b:8000", None, "b:8000 refused the connection")]
    console.print(View(console).draw(seen, Board()))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "a:9488: has not answered yet" in text
    assert "b:8000: b:8000 refused the connection" in text


def test_trouble_on_a_gpu_is_in_sight() -> None:
    """A GPU that fills up is marked even where room is short."""
    text = drawn("gpu-leak", width=80, height=24)
    assert "Memory of GPU 0 is predicted to run out in about 41 min." in text
    assert "938 MiB free  predicted" in text
