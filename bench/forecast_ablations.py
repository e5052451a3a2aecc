"""What each part of the forecast buys: the same recordings without it.

    python -m bench.forecast_ablations RECORDINGS_DIR [--only NAME]... [--apart NAME]... [--seconds S]

For every variant the recordings are replayed (their first S seconds), the recalibration is fitted anew on what that
variant sees, and its figures are printed in Markdown, pooled and of the recordings apart. Without recalibration the
probability is the share of futures that run out.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

from bench import forecast_gaussian
from bench.forecast_trace import HORIZON, Floats, Trace, chances, coefficients, figures, pooled, traces
from exporter.forecast.lengths import LengthSample
from exporter.forecast.occupancy import Occupancy


def whatever_the_age(self: LengthSample, age: Floats, uniform: Floats, limit: float) -> Floats:
    """Lengths drawn from all finished ones, as if a running request were no older than a new one."""
    drawn = self.sorted[(uniform * self.size).astype(np.intp)]
    return np.minimum(np.maximum(drawn, age + 1.0), np.maximum(limit, age + 1.0))


WHOLE = property(lambda _: 1.0)
PARTS: Mapping[str, tuple[tuple[type, str, object], ...]] = {
    "as shipped": (),
    "lengths drawn without regard to age": ((LengthSample, "draw_beyond", whatever_the_age),),
    "no prefix model": ((Occupancy, "kept", WHOLE),),
    "a Gaussian in place of roll-outs": ((Occupancy, "project", forecast_gaussian.project),),
}


@contextmanager
def without(name: str) -> Iterator[None]:
    """The forecast without a part."""
    with ExitStack() as stack:
        for owner, attribute, instead in PARTS[name]:
            stack.enter_context(patch.object(owner, attribute, instead))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--only", action="append", default=[], help="a recording to replay; all without it")
    parser.add_argument("--apart", action="append", default=[], help="a recording that is not pooled")
    parser.add_argument("--seconds", type=float, default=None)
    args = parser.parse_args()
    print("| variant | skill | auc | w15@1 | w15@3 | skill, those apart |\n|---|---|---|---|---|---|")
    for name in PARTS:
        with without(name):
            seen = [trace for trace in traces(args.recordings, args.only, args.seconds) if len(trace.known())]
        b = coefficients(seen, HORIZON)
        row(name, seen, args.apart, partial(chances, b=b, experience=True))
        if name == "as shipped":
            row("no experience of its own", seen, args.apart, partial(chances, b=b, experience=False))
            row("no recalibration", seen, args.apart, shares)


def shares(trace: Trace) -> Floats:
    """The share of futures that run out within the horizon."""
    return np.array([0.0 if seen is None else seen.shares[HORIZON] for seen in trace.evidence])


def row(name: str, seen: list[Trace], apart: list[str], chance: Callable[[Trace], Floats]) -> None:
    said = {trace.name: chance(trace) for trace in seen}
    inside, outside = ([t for t in seen if (t.name in apart) == away] for away in (False, True))
    skill = pooled(outside, said).skill if outside else None
    told = figures(pooled(inside, said))
    print(f"| {name} | {told} | {'–' if skill is None else f'{skill:.3f}'} |", flush=True)


if __name__ == "__main__":
    main()
