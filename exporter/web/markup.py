"""HTML made safe by construction: text is escaped unless it is markup already."""

from functools import lru_cache
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
    return Markup("".join([c if isinstance(c, Markup) else _escaped(c) for c in children if c is not None]))


def _attributes(attributes: dict[str, str | float | bool | None]) -> str:
    written = ""
    for key, value in attributes.items():
        if value is True:
            written += f" {_attribute(key)}"
        elif value is not None and value is not False:
            written += f' {_attribute(key)}="{_escaped(value if isinstance(value, str) else f"{value:g}")}"'
    return written


@lru_cache(maxsize=128)
def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _escaped(text: str) -> str:
    return _escaped_word(text) if len(text) < 48 else escape(text)


@lru_cache(maxsize=2048)
def _escaped_word(text: str) -> str:
    """The page says the same few words every tick; what they are escaped to is worth keeping."""
    return escape(text)
