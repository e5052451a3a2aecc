"""What the person at the keyboard has chosen: an engine and a window."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from exporter.forecast.assessment import State
from exporter.web.telling import WINDOWS
from exporter.web.words import SEVERITY

NEXT = ("j", "n", "down", "right", "tab")
BEFORE = ("k", "p", "up", "left", "backtab")
QUIT = ("q", "Q", "escape", "ctrl-c", "ctrl-d")


@dataclass(frozen=True, slots=True)
class Board:
    """The place of the chosen engine among all, the window in seconds, and whether it is time to go.

    Until an engine is chosen, the one in the worst state is shown.
    """

    chosen: int | None = None
    window: int = WINDOWS[-1]
    done: bool = False

    def press(self, key: str, states: Sequence[State]) -> "Board":
        """The choice after a key, with engines in these states to choose from."""
        if key in QUIT:
            return replace(self, done=True)
        if key in NEXT and states:
            return replace(self, chosen=(self.place(states) + 1) % len(states))
        if key in BEFORE and states:
            return replace(self, chosen=(self.place(states) - 1) % len(states))
        if key == "w":
            return replace(self, window=WINDOWS[(WINDOWS.index(self.window) + 1) % len(WINDOWS)])
        if key.isdecimal() and int(key) < len(states):
            return replace(self, chosen=int(key))
        return self

    def place(self, states: Sequence[State]) -> int:
        """The place of the engine to show, among those that are there now."""
        if self.chosen is None:
            severities = [SEVERITY.index(state) for state in states]
            return severities.index(max(severities)) if severities else 0
        return min(self.chosen, max(0, len(states) - 1))
