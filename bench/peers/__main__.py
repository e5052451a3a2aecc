"""This project beside every other monitor of vLLM that PyPI has, in one run.

    python -m bench.peers [--only NAME …] [--seconds 60] [--write]

Each is installed, newest, into an environment of its own, and run as its documentation says, reading once a second
where it can be told to, beside the same recorded page of two engines: one full and preempting twice a second, the
other empty. `--write` writes docs/peers.md and the short table of the README; figures of an idle machine only.
"""

import argparse
import sys

from bench.peers.rivals import RIVALS
from bench.peers.table import BEGIN, END, long_table, page, short_table
from bench.peers.trial import Outcome, tried
from bench.watched import ROOT, busy, write_between


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warning = busy()
    outcomes: list[Outcome] = []
    for rival in RIVALS:
        if not options.only or rival.name in options.only:
            outcomes.append(tried(rival, options.seconds))
            print(long_table(outcomes[-1:]).splitlines()[-1], flush=True)
    if warning:
        print(warning, file=sys.stderr)
    if options.write:
        (ROOT / "docs/peers.md").write_text(page(outcomes, warning))
        write_between(BEGIN, END, short_table(outcomes, warning))
    return 0


if __name__ == "__main__":
    sys.exit(main())
