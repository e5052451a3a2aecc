"""The objective: for 99 % of the time no request is preempted harmfully; two burn-rate alerts watch over it."""

from grafana.mixin.rules import Alert, Group, Recording
from grafana.mixin.thresholds import Thresholds

WINDOWS = ("5m", "30m", "1h", "6h")
_MODEL = "cluster, namespace, model_name"
_BAD = "model:vllm_headroom_preempting:max"


def _burning(long: str, short: str, rate: str, budget: str) -> str:
    return f"""
        # trend over the long window, level over the short one, so that it ends when the burning ends
        {_BAD}_avg_{long} > {rate} * {budget}
        and {_BAD}_avg_{short} > {rate} * {budget}
    """


def group(t: Thresholds) -> Group:
    """The share of time with harmful preemptions of a model's worst engine, and its burn rates."""
    bad = f"""
        max by ({_MODEL}) (
          (vllm_headroom_preemptions_per_second > bool 0)
          # where nothing finishes there is no ratio, and every preemption harms
          * ((vllm_headroom_preemptions_per_finished_request >= bool {t.healthy_preemption_ratio})
             or (vllm_headroom_preemptions_per_second >= bool 0))
        )
    """
    windows = tuple(Recording(f"{_BAD}_avg_{w}", f"avg_over_time({_BAD}[{w}])") for w in WINDOWS)

    def alert(severity: str, expr: str, long: str, hold: str, keep: str) -> Alert:
        return Alert(
            "PreemptionBudgetBurn",
            severity,
            expr,
            summary="{{ $labels.model_name }}{{ with $labels.namespace }} in {{ . }}{{ end }} spends its preemption budget "
            "too fast",
            evidence="Harmful preemptions in {{ $value | humanizePercentage }} of the last "
            + long
            + "; the objective allows "
            "1% of the time.",
            impact="Users of the model have felt it for a while: tail latency is several times the median in that time.",
            action="First: see on the fleet dashboard whether one engine or all are short of KV. One: route around it. All: "
            "add a replica (cost: a GPU), or --kv-cache-dtype fp8 (cost: check the model's quality).",
            hold=hold,
            keep=keep,
        )

    fast = _burning("1h", "5m", t.slo_fast_burn, t.slo_budget_ratio)
    slow = _burning("6h", "30m", t.slo_slow_burn, t.slo_budget_ratio)
    rules = (alert("critical", fast, "hour", "2m", "5m"), alert("warning", slow, "6 hours", "15m", "15m"))
    return Group("slo", "30s", (Recording(_BAD, bad), *windows, *rules))
