"""One thing that was looked at, and how a list of them is shown to people and to programs."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "note", "missing", "warning", "fault"]

_COLOURS: dict[Level, str] = {"ok": "32", "note": "2", "missing": "33", "warning": "33", "fault": "31;1"}
_INDENT = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen of one part.

    `missing` is something optional that is not there; `warning` works but will hurt; `fault` does not work. `rule`
    says by what it was found, `cost` what is not known without it, `change` what to write into the manifest.
    """

    part: str
    level: Level
    seen: str
    rule: str = ""
    cost: str = ""
    change: str = ""


def has_fault(findings: Sequence[Finding]) -> bool:
    """Whether anything does not work."""
    return any(finding.level == "fault" for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    """The findings as one JSON object, with `fault` as the verdict."""
    return json.dumps({"fault": has_fault(findings), "findings": [asdict(finding) for finding in findings]}, indent=2)


def as_table(findings: Sequence[Finding], *, colour: bool, width: int = 100) -> str:
    """The findings as a table; the part is named once, what follows from a finding stands below it."""
    lines: list[str] = []
    part = ""
    for finding in findings:
        if finding.part != part and part:
            lines.append("")
        name = finding.part if finding.part != part else ""
        part = finding.part
        mark = f"\x1b[{_COLOURS[finding.level]}m{finding.level:<9}\x1b[0m" if colour else f"{finding.level:<9}"
        rule = f" (by {finding.rule})" if finding.rule else ""
        lines += _wrapped(f"{name:<10}{mark} ", finding.seen + rule, width)
        lines += _wrapped(" " * _INDENT + "costs: ", finding.cost, width) if finding.cost else []
        lines += _wrapped(" " * _INDENT + "change: ", finding.change, width) if finding.change else []
    count = sum(finding.level == "fault" for finding in findings)
    verdict = "no fault found" if not count else "1 fault found" if count == 1 else f"{count} faults found"
    return "\n".join([*lines, "", verdict])


def _wrapped(head: str, text: str, width: int) -> list[str]:
    room = max(40, width - _INDENT)
    first, *rest = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    return [head + first, *(" " * _INDENT + line for line in rest)]


def gib(size: float | None) -> str:
    """Bytes for people; what is absent says so."""
    return (
        "unknown" if size is None else f"{size / 2**30:,.1f} GiB" if abs(size) >= 2**30 else f"{size / 2**20:,.0f} MiB"
    )
