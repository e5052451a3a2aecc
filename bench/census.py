"""What an object holds, by who holds it: to find the list, the dict or the array that grows."""

import collections
import os
import pickle
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

_OPAQUE = (type, types.ModuleType, types.FrameType, types.CodeType, str, bytes, int, float, bool, type(None))
_CONTAINERS = (list, tuple, set, frozenset, collections.deque)


@dataclass(slots=True)
class Held:
    """Of everything under one attribute of one class: how many objects, items in containers, and bytes."""

    objects: int = 0
    items: int = 0
    bytes: int = 0


def census(roots: Mapping[str, object], packages: Collection[str] = ("exporter",)) -> dict[str, Held]:
    """`Class.attribute` → what hangs below it, each object counted once, under the nearest of our classes above it.

    Followed are attributes, slots, containers, arrays, closures and bound methods; classes and modules are not.
    """
    found: dict[str, Held] = {}
    seen: set[int] = set()
    ahead: list[tuple[str, object]] = list(roots.items())
    keep: list[object] = []  # what was made on the way must live, or its id may come again
    while ahead:
        owner, thing = ahead.pop()
        if id(thing) in seen or (isinstance(thing, _OPAQUE) and not isinstance(thing, str | bytes)):
            continue
        seen.add(id(thing))
        held = found.setdefault(owner, Held())
        held.objects += 1
        held.bytes += thing.nbytes if isinstance(thing, np.ndarray) else sys.getsizeof(thing)
        if isinstance(thing, str | bytes):
            continue
        if isinstance(thing, dict):
            held.items += len(thing)
            ahead += ((owner, part) for pair in thing.items() for part in pair)
        if isinstance(thing, _CONTAINERS):
            held.items += len(thing)
            ahead += ((owner, part) for part in thing)
        ours = type(thing).__module__.split(".")[0] in packages
        for name, part in _attributes(thing):
            keep.append(part)
            ahead.append((f"{type(thing).__qualname__}.{name}" if ours else owner, part))
    return found


Counting = Callable[[Callable[[], dict[str, Held]]], dict[str, Held]]
"""Where the census is taken."""


def counted_apart(count: Callable[[], dict[str, Held]]) -> dict[str, Held]:
    """The same counted in a copy of this process: what counting takes is not the daemon's."""
    reader, writer = os.pipe()
    if not os.fork():
        with os.fdopen(writer, "wb") as stream:
            pickle.dump(count(), stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        held: dict[str, Held] = pickle.load(stream)
    os.wait()
    return held


class Growth:
    """Which owners hold more items from sample to sample, and never fewer; holds no more than the last sample."""

    def __init__(self) -> None:
        self._first: dict[str, int] | None = None
        self._last: dict[str, int] = {}
        self._fell: set[str] = set()

    def add(self, sample: Mapping[str, Held]) -> None:
        """Take the next sample."""
        items = {owner: held.items for owner, held in sample.items()}
        self._first = items if self._first is None else self._first
        self._fell |= {owner for owner, count in self._last.items() if items.get(owner, 0) < count}
        self._last = items

    def told(self) -> Iterator[str]:
        """Those that only grew, and by more than what a sample happens to meet, with their items at first and now."""
        for owner, count in sorted(self._last.items()):
            first = (self._first or {}).get(owner, 0)
            if count > first * 1.25 + 20 and owner not in self._fell:
                yield f"{owner}: {first} → {count}"


def _attributes(thing: object) -> Iterator[tuple[str, object]]:
    if isinstance(thing, types.FunctionType):
        for cell in thing.__closure__ or ():
            yield "", cell.cell_contents
        return
    if isinstance(thing, types.MethodType):
        yield "", thing.__self__
        return
    yield from vars(thing).items() if hasattr(thing, "__dict__") else ()
    for kind in type(thing).__mro__:
        slots = vars(kind).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{kind.__name__.lstrip('_')}{slot}" if slot.startswith("__") and not slot.endswith("__") else slot
            if slot not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield slot, getattr(thing, name)
