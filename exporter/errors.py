"""Every error this project raises on purpose.

HeadroomError
├── UsageError            wrong use of a command: exit code 2
│   ├── SettingsError     a setting has a wrong value
│   └── InputError        a file or argument a person gave cannot be used
└── SourceError           a part of the outside world could not be read; the tick goes on without it
"""

import errno

MAX_CHARACTERS = 2_000


def shown(text: str) -> str:
    """`text` on one line that a terminal, a log and a page may be sent, whoever wrote what it quotes."""
    if not text.isprintable():
        text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


class HeadroomError(Exception):
    """The root: a message fit to be shown to a person as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))


class UsageError(HeadroomError):
    """A command was used wrongly; the message names the input, the rule and the way out."""


class SettingsError(UsageError):
    """One or more settings have a wrong value; one line a fault."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = [shown(fault) for fault in faults]
        Exception.__init__(self, "\n".join(self.faults))

    def __reduce__(self) -> tuple[type["SettingsError"], tuple[list[str]]]:
        """Made anew from its faults, not from the message they make."""
        return SettingsError, (self.faults,)


class InputError(UsageError):
    """A file or argument given by a person cannot be used."""


class SourceError(HeadroomError):
    """A source could not be read.

    `reason` is a short, bounded word fit for a label (`refused`, `timeout`, `http_401`, …);
    the message is the sentence for people.
    """

    def __init__(self, source: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.source = source
        self.reason = reason


def starved(error: Exception) -> str | None:
    """The word for it where this process lacks what it needs to read anything: descriptors, memory, threads."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return "no_descriptors"
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return "out_of_memory"
    return "no_threads" if isinstance(error, RuntimeError) and "thread" in str(error) else None


def unexpected(source: str, error: Exception) -> SourceError:
    """What was not foreseen while `source` was read, as an error of that source.

    The message does not repeat what the error says: it may hold what was read, or what was sent.
    """
    told = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    return SourceError(source, starved(error) or "fault", f"reading {source} failed: {type(error).__name__}{told}")
