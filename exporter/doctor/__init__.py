"""`vllm-headroom doctor`: what can be seen from here, what cannot, what that costs, and what to change."""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code: 0 no fault, 1 a fault was found."""
    from exporter.doctor.command import run

    return run(argv)
