"""A sample and its labels: what a page, or a recording, consists of."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Labels(dict[str, str]):
    """The labels of one series, which nobody changes.

    Whoever reads the same series again and again keeps them, and with them, in `meaning`, what others have worked out
    of the series: it lives as long as the labels do.
    """

    __slots__ = ("meaning",)

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)
        self.meaning: Any = None


class Sample(NamedTuple):
    """One line of a page: the sample's name, its labels, its value."""

    name: str
    labels: Mapping[str, str]
    value: float
