from exporter.forecast.assessment import State
from exporter.top.board import Board

STATES: list[State] = ["ok", "predicted", "watch"]


def test_the_worst_engine_is_shown_until_one_is_chosen() -> None:
    """Nobody has to look for trouble: it is in view by itself, and a choice keeps it from moving."""
    board = Board()
    assert board.place(STATES) == 1
    assert board.place(["ok", "ok", "exhausted"]) == 2
    chosen = board.press("j", STATES)
    assert chosen.place(STATES) == 2
    assert chosen.place(["exhausted", "ok", "ok"]) == 2


def test_keys_go_round() -> None:
    """Next after the last is the first, and before the first the last; digits choose directly."""
    board = Board(chosen=2)
    assert board.press("down", STATES).chosen == 0
    assert board.press("tab", STATES).press("up", STATES).chosen == 2
    assert board.press("1", STATES).chosen == 1
    assert board.press("7", STATES) == board


def test_windows_go_round() -> None:
    """The key w walks through the windows and comes back."""
    board = Board()
    seen = []
    for _ in range(3):
        board = board.press("w", STATES)
        seen.append(board.window)
    assert seen == [60, 300, 900]


def test_leaving() -> None:
    """q, Escape and Ctrl-C end the view; another key does nothing."""
    assert all(Board().press(key, STATES).done for key in ("q", "escape", "ctrl-c", "ctrl-d"))
    assert Board().press("x", STATES) == Board()


def test_without_engines_no_key_fails() -> None:
    """Before the first answer, and when engines have gone, every key is harmless."""
    for key in ("j", "k", "0", "w", "tab"):
        assert Board(chosen=5).press(key, []).place([]) == 0
    assert Board(chosen=5).place(STATES) == 2
