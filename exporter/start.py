"""`run`: its flags and settings are read and checked, and the daemon begun with nothing but their values."""

import argparse
import logging
import os
import signal
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from exporter.apart import apart

if TYPE_CHECKING:
    from exporter.settings import Settings


def main(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; SIGHUP reads the files anew that protect the page.

    Exit code 0 when told to stop, 2 for a wrong setting or a port that is taken.
    """
    if "--check-config" in argv:
        read(argv)
        return 0
    # Until the daemon listens to them: a reload is too early, and to be stopped means at once.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What reads and checks the settings takes 12 MiB, and is never needed again.
    settings = apart(lambda: read(argv))
    from exporter.run import serve  # not earlier, lest the child above carry it too

    return serve(cast("Settings", settings))


def read(argv: Sequence[str]) -> SimpleNamespace | None:
    """The values of the daemon's settings; `None` where they were only to be checked, which is then done.

    Raises `UsageError` for what is wrong with them, `SystemExit` for what argparse answers by itself.
    """
    from exporter import logs
    from exporter.settings import Settings, add_flags, load, unknown_variables

    parser = argparse.ArgumentParser(prog="vllm-headroom run", description="Watch vLLM and serve its headroom.")
    parser.add_argument("--check-config", action="store_true", help="check the settings, print them and end")
    add_flags(parser)
    arguments = vars(parser.parse_args(argv))
    settings = load(arguments)
    logs.start(settings.log_level, settings.log_format)
    for name in unknown_variables(os.environ):
        logging.getLogger(__name__).warning("%s is no setting of ours and is ignored", name)
    if arguments["check_config"]:
        from exporter.run import guard_of

        guard_of(settings)
        for name in Settings.model_fields:
            print(f"{name}={getattr(settings, name)}")
        return None
    return SimpleNamespace(**{name: getattr(settings, name) for name in Settings.model_fields})
