"""How many files and connections this process may have open at once, and who gets them."""

import contextlib
import resource

WANTED = 4096
SPARE = 64
"""For what the daemon itself reads: vLLM's pages, /proc, the driver."""


def allow_more() -> None:
    """Raise the soft limit as far as is wanted and allowed: many shells and systemd give 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def affordable(connections: int) -> int:
    """So many clients at once, or fewer where they would leave none for what is read."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections if soft == resource.RLIM_INFINITY else min(connections, max(8, soft - SPARE))
