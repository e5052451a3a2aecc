"""Routing to PagerDuty: one incident for a model's KV, one for a pod's memory, whatever the severity does meanwhile.

The incident's identity is the route's matchers and its `group_by`. Neither speaks of severity, so that a warning that
turns critical stays one incident; PagerDuty raises its urgency when an event of higher severity arrives.
"""

from typing import Any

from grafana.mixin.thresholds import ENGINE_DASHBOARD

GRAFANA = "https://grafana.example.com"
KEY_FILE = "/etc/alertmanager/secrets/pagerduty-routing-key"

_ANY = 'alertname=~"VLLMHeadroom.+"'
_MACHINE = 'alertname=~"VLLMHeadroom(Device|Host|Container|Source|Server|Exporter).+"'
_BY_MODEL = ["cluster", "namespace", "model_name"]
_BY_POD = ["cluster", "namespace", "pod", "instance"]
_SAME_ENGINE = ["cluster", "namespace", "pod", "instance", "server", "model_name", "engine"]
_SAME_GPU = ["cluster", "namespace", "pod", "instance", "gpu", "uuid"]

_WORST = (
    '{{ $text := "" }}{{ range .Alerts }}{{ if or (eq $text "") '
    '(and (eq .Status "firing") (eq .Labels.severity "critical")) }}{{ $text = .Annotations.%s }}{{ end }}{{ end }}{{ $text }}'
)
"""The annotation of a critical alert that fires, or else of the first alert."""

SEVERITY = (
    '{{ $severity := "warning" }}{{ range .Alerts.Firing }}{{ if eq .Labels.severity "critical" }}'
    '{{ $severity = "critical" }}{{ end }}{{ end }}{{ $severity }}'
)
DESCRIPTION = (
    _WORST % "summary" + "{{ if gt (len .Alerts.Firing) 1 }} (and {{ len (slice .Alerts.Firing 1) }} more){{ end }}"
)
DETAILS = {
    "evidence": _WORST % "description",
    "impact": _WORST % "impact",
    "action": _WORST % "action",
    "runbook": _WORST % "runbook_url",
    "model": "{{ .CommonLabels.model_name }}",
    "namespace": "{{ .CommonLabels.namespace }}",
    "where": '{{ range $i, $alert := .Alerts }}{{ if $i }}, {{ end }}{{ or .Labels.pod .Labels.instance "-" }}'
    "{{ with .Labels.engine }} engine {{ . }}{{ end }}{{ with .Labels.gpu }} GPU {{ . }}{{ end }}{{ end }}",
    "since": '{{ with index .Alerts 0 }}{{ .StartsAt.Format "2006-01-02T15:04:05Z07:00" }}{{ end }}',
    "firing": "{{ range .Alerts.Firing }}{{ .Labels.severity }}: {{ .Annotations.summary }}\n{{ end }}",
    "resolved": "{{ range .Alerts.Resolved }}{{ .Annotations.summary }}\n{{ end }}",
    "num_firing": "{{ .Alerts.Firing | len }}",
    "num_resolved": "{{ .Alerts.Resolved | len }}",
}
DASHBOARD = (
    f"{GRAFANA}/d/{ENGINE_DASHBOARD}?from=now-1h&to=now"
    "{{ with .CommonLabels.namespace }}&var-namespace={{ . | urlquery }}{{ end }}"
    "{{ with .CommonLabels.model_name }}&var-model={{ . | urlquery }}{{ end }}"
    "{{ with .CommonLabels.pod }}&var-pod={{ . | urlquery }}{{ end }}"
)
LINKS = ((_WORST % "runbook_url", "Runbook"), (DASHBOARD, "Dashboard"))
GROUP = "{{ with .CommonLabels.model_name }}{{ . }}{{ else }}{{ .CommonLabels.pod }}{{ end }}"
CLASS = "{{ with .CommonLabels.alertname }}{{ . }}{{ else }}VLLMHeadroom{{ end }}"


def _timing(camel: bool) -> dict[str, str]:
    """Ten seconds gather what starts together; every fifteen a warning may turn critical."""
    times = {"group_wait": "10s", "group_interval": "15s", "repeat_interval": "4h"}
    return {_camel(name) if camel else name: value for name, value in times.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _muting() -> list[tuple[str, str, list[str]]]:
    """(source, target, equal): what need not be said beside what is said already."""
    critical, warning = 'severity="critical"', 'severity="warning"'
    kv = "KVExhaustionPredicted|PreemptionSpike"
    warned = "KVExhaustionPredicted|PreemptionsSustained|OfferedLoadOverCapacity"

    def names(alerts: str) -> str:
        return f'alertname=~"VLLMHeadroom({alerts})"'

    return [
        (f"{names(kv)}, {critical}", f"{names(warned)}, {warning}", _SAME_ENGINE),
        (f"{names(kv)}, {critical}", f"{names('PreemptionBudgetBurn')}, {warning}", _BY_MODEL),
        (f"{names('EngineStalled')}, {critical}", f"{names(warned)}, {warning}", _SAME_ENGINE),
        (f"{names('DeviceOOMPredicted')}, {critical}", f"{names('DeviceMemoryLow')}, {warning}", _SAME_GPU),
    ]


def alertmanager() -> dict[str, Any]:
    """A complete configuration of Alertmanager."""
    pagerduty = {
        "routing_key_file": KEY_FILE,
        "send_resolved": True,
        "client": "vllm-headroom",
        "client_url": DASHBOARD,
        "description": DESCRIPTION,
        "severity": SEVERITY,
        "class": CLASS,
        "component": "vllm",
        "group": GROUP,
        "details": DETAILS,
        "links": [{"href": href, "text": text} for href, text in LINKS],
    }
    ours = {
        "receiver": "vllm-headroom-pagerduty",
        "matchers": [_ANY],
        "group_by": _BY_MODEL,
        **_timing(camel=False),
        "routes": [{"receiver": "vllm-headroom-pagerduty", "matchers": [_MACHINE], "group_by": _BY_POD}],
    }
    return {
        "route": {"receiver": "default", "group_by": ["alertname", "cluster", "namespace"], "routes": [ours]},
        "inhibit_rules": [
            {"source_matchers": source.split(", "), "target_matchers": target.split(", "), "equal": equal}
            for source, target, equal in _muting()
        ],
        "receivers": [{"name": "default"}, {"name": "vllm-headroom-pagerduty", "pagerduty_configs": [pagerduty]}],
    }


def alertmanager_config() -> dict[str, Any]:
    """The same as an AlertmanagerConfig of the Prometheus Operator, with the key from a Secret."""
    pagerduty = {
        "routingKey": {"name": "vllm-headroom-pagerduty", "key": "routing-key"},
        "sendResolved": True,
        "client": "vllm-headroom",
        "clientURL": DASHBOARD,
        "description": DESCRIPTION,
        "severity": SEVERITY,
        "class": CLASS,
        "component": "vllm",
        "group": GROUP,
        "details": [{"key": key, "value": value} for key, value in DETAILS.items()],
        "pagerDutyLinkConfigs": [{"href": href, "alt": text} for href, text in LINKS],
    }
    ours = {
        "receiver": "vllm-headroom-pagerduty",
        "matchers": [_matcher(_ANY)],
        "groupBy": _BY_MODEL,
        **_timing(camel=True),
        "routes": [{"receiver": "vllm-headroom-pagerduty", "matchers": [_matcher(_MACHINE)], "groupBy": _BY_POD}],
    }
    return {
        "apiVersion": "monitoring.coreos.com/v1alpha1",
        "kind": "AlertmanagerConfig",
        "metadata": {"name": "vllm-headroom", "labels": {"app.kubernetes.io/name": "vllm-headroom"}},
        "spec": {
            "route": ours,
            "inhibitRules": [
                {
                    "sourceMatch": [_matcher(text) for text in source.split(", ")],
                    "targetMatch": [_matcher(text) for text in target.split(", ")],
                    "equal": equal,
                }
                for source, target, equal in _muting()
            ],
            "receivers": [{"name": "vllm-headroom-pagerduty", "pagerdutyConfigs": [pagerduty]}],
        },
    }


def _matcher(text: str) -> dict[str, str]:
    name, _, value = text.partition("=")
    kind, value = ("=~", value[1:]) if value.startswith("~") else ("=", value)
    return {"name": name, "value": value.strip('"'), "matchType": kind}
