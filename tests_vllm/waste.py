"""What the server's ledger says: how often it preempted, and how many tokens it computed again."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Event:
    """A request was `preempted` with `tokens` computed, or `resumed` with `tokens` found in the prefix cache."""

    at: float
    event: str
    request: str
    tokens: int


def events(ledger: Path, since: float = 0.0) -> list[Event]:
    """Everything written at or after `since` (Unix seconds)."""
    if not ledger.exists():
        return []
    lines = (Event(**json.loads(line)) for line in ledger.read_text(encoding="utf-8").splitlines())
    return [event for event in lines if event.at >= since]


def preemptions(seen: Iterable[Event]) -> int:
    """How many there were."""
    return sum(event.event == "preempted" for event in seen)


def recomputed_tokens(seen: Iterable[Event]) -> int:
    """Tokens whose KV was thrown away and computed again; what the prefix cache gave back is not among them.

    A request that is preempted again before it was back where it had been has computed again only that far.
    """
    total = 0
    highest: dict[str, int] = {}
    begun_from: dict[str, int] = {}
    for event in seen:
        name = event.request
        if event.event == "resumed":
            begun_from[name] = event.tokens
            continue
        if name in begun_from:
            total += max(0, min(event.tokens, highest[name]) - begun_from.pop(name))
        highest[name] = max(event.tokens, highest.get(name, 0))
    return total + sum(max(0, highest[name] - start) for name, start in begun_from.items())
