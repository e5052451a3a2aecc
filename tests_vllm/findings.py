"""What the checks found: one table, written to a file when the run ends."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Findings:
    """Figures by check, in the order in which they were found."""

    figures: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, check: str, **figures: Any) -> None:
        """Add what a check found."""
        self.figures.setdefault(check, {}).update(figures)
        print(f"\n  {check}: {figures}")  # noqa: T201 – shown when a test fails, and with -s

    def save(self) -> None:
        """Merge them into the file that VLLM_FINDINGS names, if it names one."""
        place = os.environ.get("VLLM_FINDINGS", "")
        if not place:
            return
        path = Path(place)
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(before | self.figures, indent=1) + "\n", encoding="utf-8")
