"""HTML made safe by construction: text is escaped unless it is markup already."""

from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | None
"""Text to be escaped, `Markup` to be kept, `None` to be left out."""


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element. `class_` and the like lose their underscore, other underscores become hyphens.

    An attribute that is `None` or `False` is left out, one that is `True` stands without a value.
    """
    return Markup(f"<{name}{_attributes(attributes)}>{join(*children)}</{name}>")


def void(name: str, /, **attributes: str | float | bool | None) -> Markup:
    """An element without content; its attributes as in `tag`."""
    return Markup(f"<{name}{_attributes(attributes)}>")


def join(*children: Child) -> Markup:
    """Several pieces, one after another."""
    return Markup("".join(c if isinstance(c, Markup) else escape(c) for c in children if c is not None))


def _attributes(attributes: dict[str, str | float | bool | None]) -> str:
    written = []
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        if value is True:
            written.append(f" {name}")
        elif value is not None and value is not False:
            written.append(f' {name}="{escape(value if isinstance(value, str) else f"{value:g}")}"')
    return "".join(written)
