"""Work that is done in a process of its own, so that what it needs goes with it."""

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def apart(work: Callable[[], Answer]) -> Answer:
    """What `work` returns, or raises, done by a child; what it imported is not held here afterwards.

    Only for a process that has no thread yet. Where there can be no child, or it ends without a word, the work is
    done here.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        return work()
    if child == 0:
        os.close(reader)
        _tell(work, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    if not told:
        return work()
    answer, error = pickle.loads(told)  # noqa: S301 – it comes from our own child
    if error is not None:
        raise error
    found: Answer = answer
    return found


def _tell(work: Callable[[], Answer], writer: int) -> None:
    """The child's part: write down what came of it and end at once, whatever that was."""
    try:
        answer, error = None, None
        try:
            answer = work()
        except (Exception, SystemExit) as raised:
            error = raised
        told = pickle.dumps((answer, error))
        sys.stdout.flush()
        sys.stderr.flush()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(told)
    except BrokenPipeError:  # the parent was told to end
        pass
    except Exception:  # what cannot be told is done again by the parent, which then shows it
        traceback.print_exc()
    finally:
        os._exit(0)
