"""Names that a page gives to models and engines, made fit to be kept and shown: bounded, printable, told apart."""

from hashlib import blake2s

MAX_CHARACTERS = 256
"""More than any path or id a model is served under."""
_KEPT = 200


def plain_text(name: str) -> str:
    """`name` as it is; where it is overlong, or holds what drives a terminal or turns a line, its beginning and a mark.

    The mark is made of the whole name: two that begin alike stay two.
    """
    if len(name) <= MAX_CHARACTERS and name.isprintable():
        return name
    mark = blake2s(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    begins = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in name[:_KEPT])
    return f"{begins}~{mark}"
