"""One section of docs/proof.md: what a bench or a run of the real suite found, as a JSON file of `results/`.

    Section(order=20, title="…", text=("…",), command="python -m bench.…", ran=here("0.32.0"),
            tables=(Table(("what", "found"), (("…", 1.5),)),)).save("effect-on-vllm")

`python docs/build.py` makes the page of all files there are; whoever measures again writes the same file again.
"""

import datetime
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

RESULTS = Path(__file__).parent / "results"
Value = str | int | float


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are shown as they are given: round before."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A file below docs/, and what can be seen on it."""

    file: str
    alt: str


@dataclass(frozen=True, slots=True)
class Section:
    """`figures` are the raw numbers behind text and tables, for whoever wants to compute with them; not shown."""

    order: int
    title: str
    text: tuple[str, ...]
    """Paragraphs of Markdown."""
    command: str
    ran: dict[str, str]
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)

    def save(self, name: str, directory: Path = RESULTS) -> Path:
        """Write it as results/`name`.json."""
        path = directory / f"{name}.json"
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read it back; a key that no section has is an error."""
        values = json.loads(path.read_text())
        values["text"] = tuple(values["text"])
        values["tables"] = tuple(
            Table(tuple(one["columns"]), tuple(map(tuple, one["rows"]))) for one in values.get("tables", ())
        )
        values["pictures"] = tuple(Picture(**one) for one in values.get("pictures", ()))
        return cls(**values)


def sections(directory: Path = RESULTS) -> list[Section]:
    """All there are, in the order of the page."""
    return sorted((Section.load(path) for path in directory.glob("*.json")), key=lambda one: (one.order, one.title))


def here(vllm: str, **more: str) -> dict[str, str]:
    """What a reader must know of a run: the version of vLLM, the machine, the day."""
    return {
        "vLLM": vllm,
        "machine": f"{os.cpu_count()} CPU cores, no GPU",
        "on": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **more,
    }
