"""What is said to people is fit to be shown, whoever wrote what it quotes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import MAX_CHARACTERS, InputError, SettingsError, SourceError, UsageError, shown


@given(st.text())
def test_no_message_holds_what_a_terminal_would_obey(text: str) -> None:
    """Control characters, line ends and lone surrogates are spelled out; what is printable stays as it is."""
    for error in (
        UsageError(text),
        InputError(text),
        SourceError("vllm", "refused", text),
        *SettingsError([text]).args,
    ):
        assert str(error).isprintable()
    if text.isprintable() and len(text) <= MAX_CHARACTERS:
        assert shown(text) == text


def test_what_is_spelled_out_can_be_read() -> None:
    """An escape sequence is seen as what it is."""
    assert str(InputError("a\x1b[31m\nb\ud800")) == r"a\x1b[31m\nb\ud800"


def test_no_message_is_endless() -> None:
    """A value of a megabyte is cut, with a sign that it was."""
    assert len(str(InputError("x" * 2**20))) == MAX_CHARACTERS
    assert str(InputError("x" * 2**20)).endswith("…")


@pytest.mark.parametrize("faults", [["a", "b"], ["a\nb", "c"]])
def test_faults_of_settings_are_one_line_each(faults: list[str]) -> None:
    """As many lines as faults, whatever a value holds."""
    assert len(str(SettingsError(faults)).splitlines()) == len(faults)
