"""Every alert has a runbook that a person woken by it can follow, and every query in it works."""

import re
from pathlib import Path

import promql_parser
import pytest

from tests.grafana.test_rules import FAMILIES, NAMES, RECORDED, metrics_of

HOME = Path(__file__).parents[2] / "docs" / "runbooks"
README = Path(__file__).parents[2] / "grafana" / "README.md"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation now", "Fix for good", "When it lies"]


def test_alerts_and_runbooks_are_the_same() -> None:
    """No alert is without a runbook, and no runbook without an alert."""
    assert sorted(file.stem for file in HOME.glob("VLLMHeadroom*.md")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_runbook_has_its_parts_in_order(name: str) -> None:
    """Meaning, impact, diagnosis, mitigation, fix and when it lies: each has something to say."""
    text = (HOME / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    assert parts[::2] == SECTIONS
    assert all(len(part.split()) >= 10 for part in parts[1::2])


@pytest.mark.parametrize("name", NAMES)
def test_the_queries_of_a_runbook_work(name: str) -> None:
    """There is a query to begin with; each parses and asks for series that exist."""
    queries = re.findall(r"```promql\n(.+?)```", (HOME / f"{name}.md").read_text(), re.DOTALL)
    assert queries
    for query in queries:
        promql_parser.parse(query)
        assert metrics_of(query) <= FAMILIES | RECORDED | {"up"}, query


@pytest.mark.parametrize("name", NAMES)
def test_links_between_runbooks_lead_somewhere(name: str) -> None:
    """A link to another runbook names a file that is there."""
    for target in re.findall(r"\]\((\S+?\.md)\)", (HOME / f"{name}.md").read_text()):
        assert (HOME / target).is_file(), target


@pytest.mark.parametrize("file", [*sorted(HOME.glob("*.md")), README], ids=lambda file: file.stem)
def test_documents_name_only_series_that_exist(file: Path) -> None:
    """Each of our series that a text mentions is a family of the table or a recorded one."""
    named = set(re.findall(r"\b(?:(?:model|namespace):)?vllm_headroom_\w+(?::\w+)?", file.read_text()))
    assert {name for name in named if not name.endswith("_")} <= FAMILIES | RECORDED
