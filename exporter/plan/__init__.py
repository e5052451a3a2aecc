"""`vllm-headroom plan`: what a model, a GPU and vLLM's flags come to, before anything is started."""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code: 0 fits, 1 does not fit, 2 wrong use."""
    from exporter.plan.command import run

    return run(argv)
