"""Which lines inputs reach, and the fewest inputs that reach as many."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bench.fuzz.target import MODULES, Target

Line = tuple[str, int]


def sources(aim: Target) -> list[str]:
    """The files whose lines count."""
    found = []
    for name in MODULES[aim.name]:
        module = importlib.import_module(name)
        found.append(inspect.getfile(module))
        path = getattr(module, "__path__", None)
        if path is not None:
            found += [f"{place.path}/{each}.py" for place, each, _ in _modules(path)]
    return [file for file in found if not file.endswith("__init__.py")]


def _modules(path: list[str]) -> Iterator[tuple[Any, str, bool]]:
    for info in pkgutil.iter_modules(path):
        yield info.module_finder, info.name, info.ispkg


def executable(files: Iterable[str]) -> set[Line]:
    """The lines within functions: what runs when a module is imported says nothing about an input."""
    return {line for file in files for line in _inside(compile(Path(file).read_text(), file, "exec"), function=False)}


def _inside(code: CodeType, *, function: bool) -> Iterator[Line]:
    if function:
        yield from ((code.co_filename, line) for _, _, line in code.co_lines() if line and line != code.co_firstlineno)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            # Optimised is what a function's body is and a class's is not.
            yield from _inside(constant, function=bool(constant.co_flags & inspect.CO_OPTIMIZED))


def reached(aim: Target, data: bytes, files: frozenset[str]) -> set[Line]:
    """The lines that one input reaches in `files`."""
    seen: set[Line] = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        aim.holds(data)
    finally:
        sys.settrace(before)
    return seen


def fewest(aim: Target, inputs: Iterable[bytes], known: Iterable[bytes] = ()) -> list[bytes]:
    """Of `inputs` those that reach a line which neither `known` nor a smaller one does."""
    files = frozenset(sources(aim))
    seen: set[Line] = set()
    for data in known:
        seen |= reached(aim, data, files)
    kept = []
    for data in sorted(set(inputs), key=lambda each: (len(each), each)):
        new = reached(aim, data, files) - seen
        if new:
            seen |= new
            kept.append(data)
    return kept


def share(aim: Target, inputs: Iterable[bytes]) -> tuple[int, int]:
    """Lines reached by all of `inputs`, and lines that there are."""
    files = frozenset(sources(aim))
    there = executable(files)
    seen: set[Line] = set()
    for data in inputs:
        seen |= reached(aim, data, files) & there
    return len(seen), len(there)
