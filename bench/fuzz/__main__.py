"""Fuzz one way in, or all of them in turn.

    python -m bench.fuzz TARGET|all [--minutes M | --inputs N] [--seed S] [--work DIR]
    python -m bench.fuzz TARGET|all --keep       put the fewest inputs that reach every line into the corpus
    python -m bench.fuzz TARGET|all --reached    the lines that the corpus and the seeds reach

With atheris installed (`pip install atheris`) the search is guided by coverage, without it by chance alone. What it
finds stays in DIR and is built upon by the next run. Exit code 1: some input broke a promise; it lies in DIR.
"""

import argparse
import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

from bench.fuzz import cover
from bench.fuzz.engine import FOREVER, Outcome, run
from bench.fuzz.target import CORPUS, MODULES, Target, target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=[*MODULES, "all"])
    parser.add_argument("--minutes", type=float, help="for each target")
    parser.add_argument("--inputs", type=int, default=FOREVER, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(".fuzz"))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--reached", action="store_true")
    options = parser.parse_args()
    names = list(MODULES) if options.target == "all" else [options.target]
    options.work.mkdir(parents=True, exist_ok=True)
    if options.keep or options.reached:
        for name in names:
            aim = target(name)
            if options.keep:
                keep(aim, options.work)
            print(told(aim))
        return 0
    minutes = options.minutes or (1.0 if options.inputs == FOREVER else float(FOREVER))
    faults = 0
    print("target        engine      inputs   a second   slowest   peak memory", flush=True)
    for name in names:
        outcome = run(name, minutes * 60, options.inputs, options.seed, options.work.resolve())
        with (options.work / "outcomes.jsonl").open("a") as file:
            file.write(json.dumps(asdict(outcome) | {"story": ""}, default=str) + "\n")
        print(line(outcome), flush=True)
        faults += bool(outcome.story)
    return 1 if faults else 0


def line(outcome: Outcome) -> str:
    """One run for people."""
    rate = outcome.inputs / max(outcome.seconds, 1e-9)
    figures = f"{outcome.inputs:>10,}{rate:>11,.0f}{outcome.slowest_seconds:>8.1f} s{outcome.peak_mib:>10} MiB"
    text = f"{outcome.name:<14}{outcome.engine:<8}{figures}"
    return f"{text}\n{outcome.story}\n{outcome.fault or ''}" if outcome.story else text


def keep(aim: Target, work: Path) -> None:
    """Add to the corpus what reaches lines that neither it nor the seeds do."""
    known = [*aim.seeds(), *(path.read_bytes() for path in aim.corpus)]
    found = [path.read_bytes() for path in sorted((work / aim.name).glob("*"))]
    folder = CORPUS / aim.name
    folder.mkdir(parents=True, exist_ok=True)
    for data in cover.fewest(aim, found, known):
        (folder / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)


def told(aim: Target) -> str:
    """Lines reached by the seeds and the corpus."""
    files = aim.corpus
    seen, there = cover.share(aim, [*aim.seeds(), *(path.read_bytes() for path in files)])
    size = sum(path.stat().st_size for path in files)
    share = f"{seen} of {there} lines ({seen / there:.0%})"
    return f"{aim.name:<14}{len(files):>4} inputs of {size:,} bytes, and the seeds, reach {share}"


if __name__ == "__main__":
    sys.exit(main())
