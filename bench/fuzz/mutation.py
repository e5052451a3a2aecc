"""Inputs made of other inputs: bytes moved about, and JSON changed within its own grammar."""

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

NUMBERS = (0, 1, -1, 2, 255, 2**31, 2**53, 2**63, 2**64, 10**30, 10**400, 0.5, -0.0, 1e308, 1e-320)
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "None",
    "NaN",
    "²",
    "\x00",
    "\x1b[31m",
    "\ud800",
    "x" * 300,
    [],
    {},
    [[]],
    {"": None},
)


def mutated(data: bytes, chance: Random, tokens: Sequence[bytes], longest: int) -> bytes:
    """A few cuts, bytes, tokens and repetitions."""
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        at = chance.randint(0, len(data))
        match chance.randrange(5):
            case 0:
                data = data[:at] + data[at + chance.randint(1, 8) :]
            case 1 if tokens:
                data = data[:at] + chance.choice(tokens) + data[at:]
            case 2:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 3:
                data = data[:at] + str(chance.choice(NUMBERS)).encode() + data[at:]
            case _:
                other = chance.randint(0, len(data))
                data = data[:at] + data[min(at, other) : max(at, other)] + data[at:]
    return data[:longest]


def json_mutator(keys: Sequence[str], *, lines: bool = False) -> Callable[[bytes, Random], bytes]:
    """Changes places within a JSON text, or in one line of many; what is no JSON is left as it is."""

    def mutate(data: bytes, chance: Random) -> bytes:
        rows = data.split(b"\n") if lines else [data]
        row = chance.randrange(len(rows))
        try:
            value = json.loads(rows[row])
        except (ValueError, RecursionError):
            return data
        for _ in range(chance.choice((1, 1, 2, 4))):
            value = _changed(value, chance, keys)
        rows[row] = json.dumps(value, separators=(",", ":")).encode()
        if lines and chance.random() < 0.1:
            rows.insert(chance.randrange(len(rows) + 1), rows[chance.randrange(len(rows))])
        return b"\n".join(rows)

    return mutate


def _changed(value: Any, chance: Random, keys: Sequence[str]) -> Any:
    places = list(_places(value))
    if not places or chance.random() < 0.02:
        return _anything(chance)
    holder, key = chance.choice(places)
    match chance.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[chance.choice(keys) if keys else "x"] = _anything(chance)
        case 1:
            holder.insert(key, _anything(chance))
        case 2:
            other_holder, other = chance.choice(places)
            # A copy, or the value would come to hold itself.
            holder[key] = json.loads(json.dumps(other_holder[other]))
        case 3 if isinstance(holder, dict) and keys:
            holder[chance.choice(keys)] = holder.pop(key)
        case _:
            holder[key] = _near(holder[key], chance)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(entries):
        yield value, key
        yield from _places(inner)


def _near(value: Any, chance: Random) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool) and chance.random() < 0.6:
        if abs(value) < 1e15:
            return chance.choice((value + 1, value - 1, value * 2, -value, value // 2 if value else 0, value + 0.5))
        return chance.choice(NUMBERS)
    if isinstance(value, str) and chance.random() < 0.3:
        at = chance.randint(0, len(value))
        return value[:at] + chance.choice(("", "0", "-", " ", ".", "e", "\n", '"', "\\", "é")) + value[at + 1 :]
    return _anything(chance)


def _anything(chance: Random) -> Any:
    return json.loads(json.dumps(chance.choice(NUMBERS if chance.random() < 0.6 else ODD)))
