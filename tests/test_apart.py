"""Work done by a child process."""

import os
import subprocess
import sys
import textwrap

import pytest

from exporter.apart import apart


def run(script: str) -> str:
    """What `script`, a process without threads as `apart` wants it, prints."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_what_the_work_imports_goes_with_it() -> None:
    """The answer comes back, the module that was needed for it does not, and the child is not left a zombie."""
    said = run("""
        import os, sys
        from exporter.apart import apart

        def work():
            import fractions
            return str(fractions.Fraction(6, 4))

        print(apart(work), "fractions" in sys.modules)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("no child")
    """)
    assert said == "3/2 False\nno child\n"


def test_what_the_work_raises_is_raised_here() -> None:
    """Wrong settings keep their lines, the end that argparse wants keeps its code, and what was printed is printed."""
    said = run("""
        import sys
        from exporter.apart import apart
        from exporter.errors import SettingsError

        def wrong():
            raise SettingsError(["one", "two"])

        def ended():
            print("help")
            sys.exit(3)

        for work in (wrong, ended):
            try:
                apart(work)
            except (SettingsError, SystemExit) as error:
                print(repr(str(error)))
    """)
    assert said == "'one\\ntwo'\nhelp\n'3'\n"


def test_a_child_that_ends_without_a_word_costs_nothing() -> None:
    """Where the child is killed the work is done here."""
    said = run("""
        import os, signal
        from exporter.apart import apart

        parent = os.getpid()

        def work():
            if os.getpid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
            return "done"

        print(apart(work))
    """)
    assert said == "done\n"


def test_where_there_can_be_no_child_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on processes does not keep the daemon from its settings."""

    def refused() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refused)
    assert apart(os.getpid) == os.getpid()
