"""`vllm-headroom top`: how full, how soon and why, in a terminal or a pipe."""

import argparse
import importlib.util
import signal
import sys
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from exporter import logs
from exporter.errors import UsageError
from exporter.settings import load
from exporter.top.board import Board
from exporter.top.feeds import AnyFeed, Reader, Seen, once, readers
from exporter.top.plain import plain
from exporter.web.telling import WINDOWS

BAD = ("predicted", "exhausted", "stalled")
_SETTINGS = ("api_key_file", "page_bearer_token_file", "tls_ca_file", "tls_skip_verify")
GOOD_NEWS, BAD_NEWS = 0, 1


def main(argv: Sequence[str]) -> int:
    """Show the servers until told to stop; in a pipe, report `--count` times.

    Exit code of a report: 0 all right, 1 a server does not answer or is out of KV cache, about to be or stalled.
    """
    options = _parser().parse_args(argv)
    urls = [_url(url) for url in options.url]
    settings = load({"vllm_url": " ".join(urls), **{name: getattr(options, name) for name in _SETTINGS}})
    logs.start("error", "text")
    if sys.stdout.isatty() and not options.plain:
        if importlib.util.find_spec("rich") is not None:
            return _watch(readers(settings.vllm_url, lambda url: AnyFeed(url, settings), options.interval), options)
        print("the live view needs rich: pip install 'vllm-headroom[terminal]'; here is a report", file=sys.stderr)
    feeds = [(urlsplit(url).netloc, AnyFeed(url, settings)) for url in settings.vllm_url]
    try:
        return _report(lambda: [once(server, feed, options.window) for server, feed in feeds], options)
    finally:
        for _, feed in feeds:
            feed.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vllm-headroom top",
        description="Show how full the KV cache is, how soon it runs out and why: of exporters or of vLLM servers.",
        epilog="Keys: j/k or arrows choose the engine, w the window of the past, q ends. A vLLM server is read and "
        "assessed right here; beside an exporter its own forecast is shown.",
    )
    parser.add_argument(
        "url", nargs="*", default=["http://127.0.0.1:9488"], help="exporter or vLLM, one or several (127.0.0.1:9488)"
    )
    parser.add_argument(
        "--window", type=int, choices=WINDOWS, default=WINDOWS[-1], help="seconds of the past to show (900)"
    )
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="S", help="seconds between readings (1)")
    parser.add_argument("--plain", action="store_true", help="plain text, as in a pipe")
    parser.add_argument("--count", type=int, default=1, metavar="N", help="reports in a pipe; 0 is without end (1)")
    parser.add_argument("--api-key-file", metavar="FILE", help="file with the bearer key for vLLM's page")
    help_text = "file with the bearer token of an exporter's page; passwords are not sent"
    parser.add_argument("--page-bearer-token-file", metavar="FILE", help=help_text)
    parser.add_argument("--tls-ca-file", metavar="FILE", help="CA bundle that signs the server's certificate")
    parser.add_argument("--tls-skip-verify", action="store_const", const="true", help="accept any certificate")
    return parser


def _url(given: str) -> str:
    return given if "://" in given else f"http://{given}"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 60:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number of seconds from 0.1 to 60")
    return seconds


def _report(read: Callable[[], list[Seen]], options: argparse.Namespace) -> int:
    if options.count < 0:
        raise UsageError(f"--count {options.count}: must be 0 (without end) or a number of reports")
    done = 0
    while True:
        begun = time.monotonic()
        seen = read()
        print(plain(seen), flush=True)
        done += 1
        if done == options.count:
            return BAD_NEWS if any(s.status is None or s.status.verdict.state in BAD for s in seen) else GOOD_NEWS
        time.sleep(max(0.0, options.interval - (time.monotonic() - begun)))


def _watch(sources: Sequence[Reader], options: argparse.Namespace) -> int:
    from exporter.top.screen import show

    def look(board: Board) -> list[Seen]:
        for source in sources:
            source.show(board.window)
        return [source.seen for source in sources]

    told_to_stop: list[bool] = []
    before = signal.signal(signal.SIGTERM, lambda *_: told_to_stop.append(True))
    # A program begun in the background of a script ignores Ctrl-C, and hands that on to what it begins.
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    board = Board(window=options.window)
    look(board)
    for source in sources:
        source.start()
    try:
        show(look, board, lambda: bool(told_to_stop))
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, ignored)
        for source in sources:
            source.close()
    return GOOD_NEWS
