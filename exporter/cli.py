"""The commands. Each lives in a module of its own, imported only when asked for."""

import importlib
import os
import sys
from collections.abc import Sequence

from exporter import __version__
from exporter.errors import UsageError

COMMANDS = {
    "run": ("exporter.start", "watch a vLLM server and serve its headroom to Prometheus: the daemon"),
    "top": ("exporter.top.command", "how full, how soon and why, of any exporter or vLLM, in a terminal or a pipe"),
    "demo": ("exporter.demo.command", "watch an embedded engine under a load of your choice; needs no GPU"),
    "plan": ("exporter.plan", "will this model fit, with how many requests, and which flag buys most?"),
    "replay": ("exporter.replay", "run the forecast over a recording, one JSON line per reading"),
    "backtest": ("exporter.backtest", "score the forecast on your own history beside the thresholds people use"),
    "doctor": ("exporter.doctor", "what can be seen from here, what cannot, and what that costs"),
}

GOOD, BAD_NEWS, WRONG_USE = 0, 1, 2


def usage() -> str:
    """The overview of all commands."""
    lines = [f"  {name:<10}{what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: vllm-headroom COMMAND [OPTION …]",
            "",
            "Says before it hurts that a vLLM server's memory is about to run out.",
            "",
            *lines,
            "",
            "vllm-headroom COMMAND --help tells the options of a command.",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command named first; its exit code: 0 good, 1 the answer is bad news, 2 wrong use."""
    # Linear algebra would start a thread for every core of the node; nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else ""
    if name in ("-h", "--help", "help"):
        print(usage())
        return GOOD
    if name in ("-V", "--version", "version"):
        print(f"vllm-headroom {__version__}")
        return GOOD
    if name not in COMMANDS:
        told = f"unknown command {name!r}" if name else "no command given"
        print(f"vllm-headroom: {told}\n\n{usage()}", file=sys.stderr)
        return WRONG_USE
    try:
        code: int = importlib.import_module(COMMANDS[name][0]).main(arguments[1:])
    except UsageError as error:
        for line in str(error).splitlines():
            print(f"vllm-headroom {name}: {line}", file=sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away; Python must not complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    return code
