"""What the person at the keyboard has chosen: an engine and a window."""

from dataclasses import dataclass, replace

from exporter.web.telling import WINDOWS

NEXT = ("j", "n", "down", "right", "tab")
BEFORE = ("k", "p", "up", "left", "backtab")
QUIT = ("q", "Q", "escape", "ctrl-c", "ctrl-d")


@dataclass(frozen=True, slots=True)
class Board:
    """The place of the chosen engine among all, the window in seconds, and whether it is time to go."""

    chosen: int = 0
    window: int = WINDOWS[-1]
    done: bool = False

    def press(self, key: str, engines: int) -> "Board":
        """The choice after a key, with `engines` to choose from."""
        if key in QUIT:
            return replace(self, done=True)
        if key in NEXT and engines:
            return replace(self, chosen=(self.within(engines) + 1) % engines)
        if key in BEFORE and engines:
            return replace(self, chosen=(self.within(engines) - 1) % engines)
        if key == "w":
            return replace(self, window=WINDOWS[(WINDOWS.index(self.window) + 1) % len(WINDOWS)])
        if key.isdigit() and int(key) < engines:
            return replace(self, chosen=int(key))
        return self

    def within(self, engines: int) -> int:
        """The chosen place among those that are there now."""
        return min(self.chosen, max(0, engines - 1))
