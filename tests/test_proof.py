"""docs/proof.md and what it is made of."""

from pathlib import Path

from bench.proof.page import proof_page
from bench.proof.section import Picture, Section, Table, sections

DOCS = Path(__file__).parents[1] / "docs"


def test_a_section_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    """What a bench writes is what the page is made of, in the order that the sections ask for."""
    table = Table(("what", "found"), (("a|b", 1.5), ("c", "-")))
    later = Section(2, "Later", ("One.", "Two."), "python -m x", {"vLLM": "0.32.0"}, (table,), figures={"x": [1, 2]})
    first = Section(1, "First", (), "scripts/y", {}, pictures=(Picture("img/a.png", "A"),))
    later.save("a", tmp_path)
    first.save("b", tmp_path)
    found = sections(tmp_path)
    assert found == [first, later]
    page = proof_page(found)
    assert page.index("## First") < page.index("![A](img/a.png)") < page.index("## Later")
    assert "| what | found |\n| --- | --- |\n| a\\|b | 1.5 |" in page
    assert page.endswith("`python -m x` (vLLM 0.32.0)\n")


def test_every_picture_is_there() -> None:
    """The page shows only pictures that are committed."""
    for section in sections():
        for picture in section.pictures:
            assert (DOCS / picture.file).is_file(), picture.file
