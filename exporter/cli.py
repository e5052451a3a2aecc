"""The commands. Each lives in its own module and is imported only when asked for."""


def main() -> int:
    """Run the command named on the command line; return its exit code."""
    return 0
