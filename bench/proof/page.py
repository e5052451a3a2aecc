"""The sections that were measured → docs/proof.md."""

from collections.abc import Sequence

from bench.proof.section import Section, Table, sections

HEAD = """\
# Proven on a real server

Made from the files in `bench/proof/results/` by `python docs/build.py`. Each section is what its command found when
it was last run against a real vLLM server: the CPU build of vLLM, a tiny model with random weights, real requests over
HTTP, `vllm-headroom run` beside it as a process of its own. Scheduler, KV cache manager, metrics page and API server
are vLLM's own; what a GPU would change is how long a forward pass takes.
"""


def proof_page(found: Sequence[Section] | None = None) -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(one) for one in (sections() if found is None else found))])


def _section(section: Section) -> str:
    ran = "; ".join(f"{name} {value}" for name, value in section.ran.items())
    lines = [f"## {section.title}", ""]
    for paragraph in section.text:
        lines += [paragraph, ""]
    for table in section.tables:
        lines += [*_table(table), ""]
    for picture in section.pictures:
        lines += [f"![{picture.alt}]({picture.file})", ""]
    return "\n".join([*lines, f"`{section.command}` ({ran})", ""])


def _table(table: Table) -> list[str]:
    rows = [table.columns, ("---",) * len(table.columns), *table.rows]
    return ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
