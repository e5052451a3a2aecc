"""The embedded engine beside a real server: `VLLM_ENV=DIR python -m bench.proof.demo --seeds 1 2 3 [--save]`.

For each seed a fresh server is given the requests of `bench/real_server.py`; the embedded engine is given the same, and
both are held against each other at every reading of the real page. With --save the runs become inputs of the tests
(`tests/data/demo/real-server-SEED.jsonl.gz`) and the differences a section of docs/proof.md, over all runs there are.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from bench import real_server
from bench.proof.section import Section, Table, here
from tests.support.real_server import Difference, compare, recorded_run
from tests.support.traces import DATA
from tests_vllm.server import VllmServer
from tests_vllm.tiny import make_model


def record(seed: int, file: Path, options: argparse.Namespace) -> None:
    """One run against a fresh server, written to `file`."""
    with (
        tempfile.TemporaryDirectory() as place,
        VllmServer(make_model(Path(place) / "tiny"), Path(place) / "vllm.log", *real_server.FLAGS.split()) as server,
    ):
        asked = argparse.Namespace(
            url=server.url, requests=options.requests, rate=options.rate, burst=options.burst, seed=seed
        )
        real_server.write(file, *asyncio.run(real_server.drive(asked)))


def row(name: str, found: Difference) -> tuple[str, str, str, str, str, str]:
    """One line of the table."""
    return (
        name,
        f"{100 * found.usage:.2f} points",
        f"{found.running:.2f}",
        f"{found.waiting:.2f}",
        f"{found.passes[0]:,} / {found.passes[1]:,}",
        f"{found.preemptions[0]} / {found.preemptions[1]}",
    )


def section(version: str) -> Section:
    """All committed runs as a section of docs/proof.md."""
    names = {path.name.partition(".")[0]: path for path in sorted(DATA.glob("real-server*.jsonl.gz"))}
    found = {name: compare(*recorded_run(path)) for name, path in names.items()}
    columns = ("run", "usage", "running", "waiting", "forward passes", "preemptions")
    return Section(
        order=45,
        title="The embedded engine beside the real one",
        text=(
            "90 requests of log-normal prompts and 100–700 tokens of output, 30 of them in a burst, overrun a pool "
            "of 256 blocks; the embedded engine is given the same requests. Means of the absolute differences over "
            "all readings of the real page; totals are embedded / real. A real server's passes last as long as the "
            "machine lets them, so the two are compared pass by pass.",
        ),
        command="python -m bench.proof.demo --seeds 1 2 3 --save",
        ran=here(version),
        tables=(Table(columns, tuple(row(name, one) for name, one in found.items())),),
        figures={name: {"usage": one.usage, "preemptions": one.preemptions} for name, one in found.items()},
    )


def main() -> int:
    """Record, compare and print; 0 when usage differs by no more than 2 points anywhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=[])
    parser.add_argument("--requests", type=int, default=90)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--burst", type=int, default=30)
    parser.add_argument("--save", action="store_true", help="keep the runs and write the section of docs/proof.md")
    options = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as place:
        for seed in options.seeds:
            name = f"real-server-{seed}.jsonl.gz"
            file = (DATA if options.save else Path(place)) / name
            record(seed, file, options)
            found = compare(*recorded_run(file))
            worst = max(worst, found.usage)
            print(*row(name, found), sep="   ", flush=True)
    if options.save:
        from bench.proof.versions import installed

        section(installed("vllm").partition("+")[0]).save("embedded-engine")
    return 0 if worst <= 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
