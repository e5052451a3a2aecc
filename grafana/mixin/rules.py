"""What a rule is, how its annotations are written, and the pieces of PromQL that many rules share."""

from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from grafana.mixin.thresholds import RUNBOOKS

PREFIX = "VLLMHeadroom"

BLIND = 'vllm_headroom_source_up{source="vllm"} == 0'
BLIND_POD = 'max without (server) (vllm_headroom_source_up{source="vllm"}) == 0'
"""As BLIND, for series that belong to no server: none that the exporter watches can be read."""
QUIET = 'vllm_headroom_state{state=~"asleep|stalled|unknown"} == 1'

SCRAPE = ("job", "instance")
BY_ENGINE = (*SCRAPE, "server", "model_name", "engine")
BY_GPU = (*SCRAPE, "gpu", "uuid")
BY_SOURCE = (*SCRAPE, "server", "source")


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule."""

    record: str
    expr: str

    def render(self) -> dict[str, Any]:
        """The rule as Prometheus reads it."""
        return {"record": self.record, "expr": _tidy(self.expr)}


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule. `name` lacks the prefix; `evidence` speaks with numbers, `action` names flag and cost.

    `by` are the labels that a series must share with the alert to be its evidence.
    """

    name: str
    severity: str
    expr: str
    summary: str
    evidence: str
    impact: str
    action: str
    hold: str = "0s"
    keep: str = "5m"
    by: tuple[str, ...] = BY_ENGINE

    def render(self) -> dict[str, Any]:
        """The rule as Prometheus reads it."""
        return {
            "alert": PREFIX + self.name,
            "expr": _tidy(self.expr),
            **({} if self.hold == "0s" else {"for": self.hold}),
            **({} if self.keep == "0s" else {"keep_firing_for": self.keep}),
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self._with_lookups(self.evidence),
                "impact": self.impact,
                "action": self._with_lookups(self.action),
                "runbook_url": f"{RUNBOOKS}/{PREFIX}{self.name}.md",
            },
        }

    def _with_lookups(self, text: str) -> str:
        """`text` after the definition of `$of`, the matchers of the alert's own series, where it looks any up."""
        if "$of" not in text:
            return text
        matchers = ",".join(f"{label}=%q" for label in self.by)
        return "{{ $of := printf `" + matchers + "`" + "".join(f" $labels.{label}" for label in self.by) + " }}" + text


@dataclass(frozen=True, slots=True)
class Group:
    """A group of rules, evaluated every `interval`."""

    name: str
    interval: str
    rules: tuple[Alert | Recording, ...]

    def render(self) -> dict[str, Any]:
        """The group as Prometheus reads it."""
        rules = [rule.render() for rule in self.rules]
        return {"name": f"vllm-headroom-{self.name}", "interval": self.interval, "rules": rules}


def _tidy(expr: str) -> str:
    text = dedent(expr).strip()
    return text + "\n" if "\n" in text else text


WHERE = "{{ with $labels.pod }}pod {{ $labels.namespace }}/{{ . }}{{ else }}{{ $labels.instance }}{{ end }}"
"""The pod, or outside Kubernetes the instance."""

ENGINE = "Engine {{ $labels.engine }} of {{ $labels.model_name }} (" + WHERE + ")"


def number(metric: str, form: str = "humanize", otherwise: str = "unknown", unit: str = "") -> str:
    """Template text that looks up `metric` for the alert's own series, or says `otherwise`.

    `metric` may carry matchers of its own; `form` is a template function, or a `printf` format in quotes.
    """
    name, _, own = metric.rstrip("}").partition("{")
    matchers = f"{own},%s" if own else "%s"
    shown = f"printf {form}" if form.startswith('"') else form
    found = "{{ . | first | value | " + shown + " }}" + unit + "{{ else }}" + otherwise + "{{ end }}"
    return "{{ with printf `" + name + "{" + matchers + "}` $of | query }}" + found
