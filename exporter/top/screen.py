"""The live loop: draw, take keys, until the person or a signal says stop. Needs rich."""

import os
import sys
from collections.abc import Callable, Sequence

from rich.console import Console, ConsoleDimensions
from rich.live import Live

from exporter.top.board import Board
from exporter.top.feeds import Seen
from exporter.top.keys import keys
from exporter.top.report import places, states
from exporter.top.view import View

FRAME_SECONDS = 0.25


def show(
    look: Callable[[Board], Sequence[Seen]],
    board: Board,
    stopped: Callable[[], bool],
    title: str = "vllm-headroom top",
    notes: Sequence[str] = (),
) -> None:
    """Draw what `look` sees four times a second, until `stopped` or a key for it; Ctrl-C leaves too."""
    console = Console()
    view = View(console, title, notes)
    try:
        with keys() as pressed, Live(console=console, auto_refresh=False, screen=True) as live:
            while not board.done and not stopped():
                # rich keeps to LINES and COLUMNS where a shell has set them, and so misses every resize.
                size = os.get_terminal_size(sys.stdout.fileno())
                if all(size):  # a terminal that was given no size says 0 × 0
                    console.size = ConsoleDimensions(*size)
                seen = look(board)
                live.update(view.draw(seen, board), refresh=True)
                for key in pressed.pressed(FRAME_SECONDS):
                    board = board.press(key, states(places(seen)))
    except KeyboardInterrupt:
        pass  # the usual way to leave
