"""One target in this process, until its time or number of inputs is over, or a promise is broken."""

import argparse
import resource
import sys
from pathlib import Path
from random import Random

from bench.fuzz import engine
from bench.fuzz.target import CORPUS, MODULES, Target


def guided(options: argparse.Namespace) -> None:
    """Hand the process to libFuzzer; it does not come back."""
    import atheris

    with atheris.instrument_imports(include=list(MODULES[options.target])):
        aim = engine.load(options.target, options.seeds)
    tokens = Path(options.seeds).with_suffix(".dict")
    tokens.write_text("".join(f'"{spelled(token)}"\n' for token in aim.tokens if 0 < len(token) <= 64))

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        chance = Random(seed)
        if aim.mutate is not None and chance.random() < 0.5:
            return aim.mutate(data, chance)[:longest]
        changed: bytes = atheris.Mutate(data, longest)
        return changed

    limits = [
        f"-max_total_time={max(1, round(options.seconds))}",
        f"-runs={options.inputs if options.inputs < 2**31 else -1}",
        f"-seed={options.seed or 1}",
        f"-max_len={aim.longest}",
        f"-timeout={engine.SECONDS_AN_INPUT}",
        f"-rss_limit_mb={engine.MEMORY_MIB}",
        f"-artifact_prefix={options.faults}/{aim.name}-",
        "-print_final_stats=1",
        f"-dict={tokens}",
    ]
    corpus = [str(options.work), *(str(path) for path in (CORPUS / aim.name, options.seeds) if path.is_dir())]
    atheris.Setup([sys.argv[0], *limits, *corpus], aim.holds, custom_mutator=mutate)
    atheris.Fuzz()


def spelled(token: bytes) -> str:
    """A token as libFuzzer's dictionaries write it."""
    return "".join(f"\\x{byte:02x}" for byte in token)


def bounded(aim: Target, options: argparse.Namespace) -> int:
    """Inputs by chance, with memory and time bounded by the system."""
    resource.setrlimit(resource.RLIMIT_DATA, (engine.MEMORY_MIB * 2**20,) * 2)
    return engine.by_chance(aim, options.seconds, options.inputs, options.seed, options.faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--faults", type=Path, required=True)
    parser.add_argument("--seeds", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--inputs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    if engine.guided():
        guided(options)
        return 0
    return bounded(engine.load(options.target, options.seeds), options)


if __name__ == "__main__":
    sys.exit(main())
