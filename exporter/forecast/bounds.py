"""How many requests the forecast holds in its arrays, whatever a page says.

A page may tell of a billion running requests, be it by a fault or by intent; each costs some kilobytes here. No engine
has as many as these bounds allow, and where one had, the forecast would not differ: the pool is long since full.
"""

PRESENT = 8_192
"""Running, and waiting; vLLM's own limit is 256 or 1,024 by default."""
ENDED = 8_192
"""Between two readings."""
COMING = 32_768
"""Within the farthest horizon, in one roll-out: 273 a second for two minutes."""


def present(count: float | None) -> int:
    """Requests that are there, as many as are followed."""
    return round(min(count or 0.0, float(PRESENT)))
