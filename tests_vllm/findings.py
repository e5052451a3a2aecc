"""What the checks found: one table, written to a file when the run ends."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests_vllm.server import VllmServer


@dataclass
class Findings:
    """Figures by check, in the order in which they were found."""

    figures: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, check: str, **figures: Any) -> None:
        """Add what a check found."""
        self.figures.setdefault(check, {}).update(figures)
        print(f"\n  {check}: {figures}")  # noqa: T201 – shown when a test fails, and with -s

    def keep(self, name: str, server: VllmServer) -> None:
        """Write the server's page as it is now to `name`.prom in the directory that VLLM_PAGES names, if it names one.

        The flags are added to `flags.json` there. The model's path is this run's own and is made `./tiny`.
        """
        place = os.environ.get("VLLM_PAGES", "")
        if not place:
            return
        directory = Path(place)
        page = server.page().replace(str(server.model), "./tiny")
        (directory / f"{name}.prom").write_text(page, encoding="utf-8")
        told = directory / "flags.json"
        flags = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {}
        shown = [flag.replace(str(server.model.parent), ".") for flag in server.flags]
        told.write_text(json.dumps({**flags, f"{name}.prom": " ".join(shown)}, indent=1) + "\n", encoding="utf-8")

    def save(self) -> None:
        """Merge them into the file that VLLM_FINDINGS names, if it names one."""
        place = os.environ.get("VLLM_FINDINGS", "")
        if not place:
            return
        path = Path(place)
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(before | self.figures, indent=1) + "\n", encoding="utf-8")
