from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from exporter.web.markup import Markup, join, tag, void


class Collector(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.elements: list[tuple[str, list[tuple[str, str | None]]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parse(html: str) -> Collector:
    collector = Collector()
    collector.feed(html)
    collector.close()
    return collector


@given(text=st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"])))
def test_text_never_becomes_markup(text: str) -> None:
    """Whatever a model is called, it comes out as the same text and attribute, and as nothing else."""
    parsed = parse(tag("p", text, title=text))
    assert parsed.elements == [("p", [("title", text)])]
    assert "".join(parsed.text) == text


def test_markup_is_kept_and_none_left_out() -> None:
    """What is markup already is not escaped again, and what is absent leaves no trace."""
    assert tag("p", tag("b", "<"), None, join("a", None, Markup("<br>"))) == "<p><b>&lt;</b>a<br></p>"


def test_attributes_follow_html() -> None:
    """True stands alone, False and None are absent, numbers are short, underscores become hyphens."""
    written = void("x", class_="a", hidden=True, open=False, id=None, width=0.5, aria_label="l", viewBox="0 0 1 1")
    assert written == '<x class="a" hidden width="0.5" aria-label="l" viewBox="0 0 1 1">'
