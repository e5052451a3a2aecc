"""Every error this project raises on purpose.

HeadroomError
├── UsageError            wrong use of a command: exit code 2
│   ├── SettingsError     a setting has a wrong value
│   └── InputError        a file or argument a person gave cannot be used
└── SourceError           a part of the outside world could not be read; the tick goes on without it
"""

import errno


class HeadroomError(Exception):
    """The root: a message fit to be shown to a person as it is."""


class UsageError(HeadroomError):
    """A command was used wrongly; the message names the input, the rule and the way out."""


class SettingsError(UsageError):
    """One or more settings have a wrong value; one line a fault."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


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


def unexpected(source: str, error: Exception) -> SourceError:
    """What was not foreseen while `source` was read, as an error of that source.

    The message does not repeat what the error says: it may hold what was read, or what was sent.
    """
    reason = "fault"
    if isinstance(error, MemoryError):
        reason = "out_of_memory"
    elif isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        reason = "no_descriptors"
    told = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    return SourceError(source, reason, f"reading {source} failed: {type(error).__name__}{told}")
