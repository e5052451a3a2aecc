"""Every error this project raises on purpose.

HeadroomError
├── UsageError            wrong use of a command: exit code 2
│   ├── SettingsError     a setting has a wrong value
│   └── InputError        a file or argument a person gave cannot be used
└── SourceError           a part of the outside world could not be read; the tick goes on without it
"""


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
