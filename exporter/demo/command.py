"""`vllm-headroom demo`: the main job without a GPU, a model or a server."""

import argparse
import contextlib
import importlib.util
import math
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from exporter import logs
from exporter.demo import words
from exporter.demo.demo import Demo
from exporter.demo.traffic import SCENARIOS, Scenario, scenario

MAX_SPEED = 600.0
LINE_SECONDS = 1.0
WINDOW_SECONDS = 300
"""How much of the past the view shows at first."""


def main(argv: Sequence[str]) -> int:
    """Show the demo until told to stop or for `--duration` seconds. Exit code 0; 2 for wrong use."""
    options = _parser().parse_args(argv)
    chosen = scenario(options.scenario)
    listen = f"127.0.0.1:{options.port}" if options.port is not None else options.listen
    logs.start("warning", "text")
    with _told_to_stop() as stop, Demo(chosen, seed=options.seed, speed=options.speed, listen=listen) as demo:
        if options.view and sys.stdout.isatty():
            if importlib.util.find_spec("rich") is not None:
                _show(demo, chosen, options, stop)
                return 0
            print("the live view needs rich: pip install 'vllm-headroom[terminal]'; here is the plain output instead")
        _print(demo, chosen, options, stop)
    return 0


def _parser() -> argparse.ArgumentParser:
    scenarios = "\n".join(
        textwrap.fill(
            f"{one.name:<15}{one.happens} Watch for: {one.watch}.", 100, initial_indent="  ", subsequent_indent=" " * 17
        )
        for one in SCENARIOS.values()
    )
    parser = argparse.ArgumentParser(
        prog="vllm-headroom demo",
        description="Watch an embedded engine, which schedules as vLLM V1 does, run out of KV cache, or not.",
        epilog=f"scenarios:\n{scenarios}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scenario", default="burst", metavar="NAME", help="what happens (burst); see below")
    parser.add_argument(
        "--speed", type=_between(0.1, MAX_SPEED), default=1.0, metavar="X", help="engine seconds a second (1)"
    )
    parser.add_argument("--duration", type=_between(0.1, 1e7), metavar="S", help="end after S seconds (until Ctrl-C)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="another seed is other traffic (0)")
    parser.add_argument("--no-view", dest="view", action="store_false", help="a line a second instead of the view")
    parser.add_argument(
        "--listen", default="127.0.0.1:9488", metavar="HOST:PORT", help="where the exporter serves (127.0.0.1:9488)"
    )
    parser.add_argument("--port", type=int, metavar="PORT", help="the same on 127.0.0.1; 0 takes a free port")
    return parser


def _between(least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        with contextlib.suppress(ValueError):
            if least <= float(text) <= most:
                return float(text)
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number from {least:g} to {most:g}")

    return number


@contextlib.contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; the handlers from before come back at the end."""
    stop = threading.Event()

    def ask_to_stop(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _notes(demo: Demo, chosen: Scenario) -> tuple[str, ...]:
    return (
        f"{chosen.name}: {chosen.happens}",
        f"Watch for: {chosen.watch}.",
        f"Exporter: {demo.url}/metrics and /, engine: {demo.engine_url}/metrics. Ctrl-C ends.",
    )


def _frames(seconds: float, duration: float | None, stop: threading.Event) -> Iterator[None]:
    """One turn every `seconds` until the end; the last one is at the end itself."""
    end = None if duration is None else time.monotonic() + duration
    while not stop.wait(seconds if end is None else max(0.0, min(seconds, end - time.monotonic()))):
        yield
        if end is not None and time.monotonic() >= end:
            return


def _print(demo: Demo, chosen: Scenario, options: argparse.Namespace, stop: threading.Event) -> None:
    print(*_notes(demo, chosen), sep="\n", flush=True)
    for _ in _frames(LINE_SECONDS, options.duration, stop):
        _print_lines(demo)


def _print_lines(demo: Demo) -> None:
    snapshot = demo.latest
    if snapshot is not None:
        print(*(words.line(snapshot, status) for status in snapshot.engines), sep="\n", flush=True)


def _show(demo: Demo, chosen: Scenario, options: argparse.Namespace, stop: threading.Event) -> None:
    from exporter.top.board import Board
    from exporter.top.feeds import Seen
    from exporter.top.screen import show

    end = math.inf if options.duration is None else time.monotonic() + options.duration

    def look(board: Board) -> list[Seen]:
        return [Seen("demo", demo.status(board.window), "has not answered yet")]

    title = f"vllm-headroom demo: {chosen.name}" + (f", {options.speed:g} times as fast" if options.speed != 1 else "")
    board = Board(window=WINDOW_SECONDS)
    show(look, board, lambda: stop.is_set() or time.monotonic() >= end, title, _notes(demo, chosen))
    _print_lines(demo)  # the view is gone with its screen
