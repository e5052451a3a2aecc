"""Names that a hostile server gives to its model, and pages that bear them."""

import re
from collections.abc import Sequence

from tests.support.expositions import TWO_ENGINES, exposition

NAMES = (
    'quote"back\\slash',
    "line\nfeed",
    "</script><script>alert(1)</script>",
    "\"><img src=x onerror=alert(2)>' onmouseover='alert(3)",
    "</title></style><!--",
    "\x1b[2J\x1b]0;owned\x07",
    "\u202eright-to-left\u200f\u2066",
    "nul\0",
    "\u2028\u2029\x85\r",
    '{}=,"# 1 1700000000',
    "%s %(message)s {0} $(id)",
    "../../../../etc",
    "/etc",
    "http://127.0.0.1:1/",
    "x" * 10_000,
    "",
)


def page(names: Sequence[str] = NAMES) -> str:
    """The page of a server with one engine of each name."""
    lines = []
    for line in exposition(TWO_ENGINES).splitlines():
        if 'engine="0"' in line and "model_name=" in line:
            for name in names:
                escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
                before, _, after = re.split(r'(model_name="[^"]*")', line)
                lines.append(f'{before}model_name="{escaped}"{after}')
        elif 'engine="1"' not in line:
            lines.append(line)
    return "\n".join(lines) + "\n"
