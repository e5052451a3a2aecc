"""A sample and its labels: what a page, or a recording, consists of."""

from collections.abc import Mapping
from typing import NamedTuple


class Labels(dict[str, str]):
    """The labels of one series: a dict that nobody changes, so that it may be a key.

    Whoever reads the same series again and again keeps its labels, and spares everyone after it the work of
    telling anew what they mean.
    """

    __slots__ = ("_hash",)

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)
        self._hash = hash(frozenset(self.items()))

    def __hash__(self) -> int:  # type: ignore[override]
        return self._hash


class Sample(NamedTuple):
    """One line of a page: the sample's name, its labels, its value."""

    name: str
    labels: Mapping[str, str]
    value: float
