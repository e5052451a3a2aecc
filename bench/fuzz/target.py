"""What is fuzzed: a check that must hold for every input, and what its inputs look like."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from exporter.errors import HeadroomError

CORPUS = Path(__file__).parents[2] / "tests" / "data" / "fuzz"
MODULES: Mapping[str, tuple[str, ...]] = {
    "page": (
        "exporter.sources.page",
        "exporter.sources.engines",
        "exporter.sources.histograms",
        "exporter.sources.cache_config",
        "exporter.capacity",
    ),
    "answer": ("exporter.sources.vllm", "exporter.sources.endpoint", "exporter.sources.http_faults"),
    "config": ("exporter.kv", "exporter.plan.answer", "exporter.plan.text", "exporter.sources.model_config"),
    "recording": ("exporter.sources.recording", "exporter.replay", "exporter.sources.engines"),
    "settings": ("exporter.settings",),
    "prometheus": ("exporter.sources.prometheus", "exporter.sources.engines", "exporter.sources.histograms"),
    "document": (
        "exporter.top.feeds",
        "exporter.top.plain",
        "exporter.top.report",
        "exporter.top.sketch",
        "exporter.top.view",
    ),
    "startup_log": ("exporter.plan.startup_log", "exporter.plan.log_report"),
    "kubelet": ("exporter.sources.pod_resources",),
    "kernel": (
        "exporter.sources.cgroup",
        "exporter.sources.host",
        "exporter.sources.oom_kills",
        "exporter.sources.server_process",
        "exporter.sources.gpu_owner",
    ),
    "tick": (
        "exporter.watch",
        "exporter.models",
        "exporter.capacity",
        "exporter.forecast",
        "exporter.metrics",
        "exporter.web",
        "exporter.history",
    ),
}
"""Every target, and the modules (or packages) whose lines it is to reach."""

Mutate = Callable[[bytes, Random], bytes]


@dataclass(frozen=True)
class Target:
    """One way in from outside.

    `check` reads an input and raises where a promise is broken; of the project's own errors only those in `allowed`
    may escape it. `seeds` are valid inputs, `tokens` what belongs between them.
    """

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    tokens: tuple[bytes, ...] = ()
    mutate: Mutate | None = None
    allowed: tuple[type[Exception], ...] = (HeadroomError,)
    longest: int = 4096

    def holds(self, data: bytes) -> None:
        """Check one input; whatever escapes is a fault."""
        try:
            self.check(data)
        except self.allowed as error:
            fit_to_be_shown(error)

    @property
    def corpus(self) -> list[Path]:
        """The committed inputs."""
        return sorted((CORPUS / self.name).glob("*"))


def fit_to_be_shown(error: Exception) -> None:
    """A message for people: a line a fault, none of them endless, no control character in any."""
    for line in str(error).splitlines() or [""]:
        assert line.isprintable(), f"a message that no terminal should be sent: {line!r}"
        assert len(line) <= 2_000, f"a message of {len(line)} characters: {line[:200]!r}"


def target(name: str) -> Target:
    """The target of that name; nothing of it is imported before."""
    found: Target = importlib.import_module(f"bench.fuzz.targets.{name}").TARGET
    return found
