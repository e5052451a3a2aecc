"""The chart's README, made from values.yaml: every value, its default, and the comment above it."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z][A-Za-z0-9]*):(?: |$)")
_COMMENT = re.compile(r"^ *# ?(?P<start>-- )?(?P<text>.*)$")

INTRODUCTION = """\
# vllm-headroom: the chart

Puts vllm-headroom beside any vLLM server, and its alerts and dashboards into Prometheus and Grafana.
Needs Kubernetes 1.29; the sidecar by label needs MutatingAdmissionPolicy: 1.36, or 1.34 with that feature gate and
`admissionregistration.k8s.io/v1beta1` enabled. How to install it, and the other ways to add the sidecar:
[docs/install.md](../../../docs/install.md).

What depends on a kind that the cluster may lack (`create: auto`) is left out where the kind is missing.

## Values

| value | default | meaning |
|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Value:
    """One documented value: its path in values.yaml, its default, and its comment."""

    path: tuple[str, ...]
    default: Any
    meaning: str

    def row(self) -> str:
        """The value as a row of the README's table."""
        cells = (f"`{'.'.join(self.path)}`", f"`{json.dumps(self.default)}`", self.meaning)
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def documented(text: str) -> Iterator[Value]:
    """The values of a values.yaml that have a comment beginning with `# --` above them."""
    values = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] | None = None
    for line in text.splitlines():
        key = _KEY.match(line)
        if key:
            path[len(key["indent"]) // 2 :] = [key["key"]]
            if comment is not None:
                yield Value(tuple(path), at(values, path), " ".join(comment))
            comment = None
            continue
        words = _COMMENT.match(line)
        if words and words["start"]:
            comment = [words["text"]]
        elif words and comment is not None:
            comment.append(words["text"])
        else:
            comment = None


def at(values: Any, path: Sequence[str]) -> Any:
    """The value at `path`."""
    for key in path:
        values = values[key]
    return values


def readme(text: str) -> str:
    """The README of a chart with this values.yaml."""
    rows = [value.row() for value in documented(text)]
    return "<!-- Made by deploy/build.py from values.yaml. -->\n" + INTRODUCTION + "\n".join(rows) + "\n"
