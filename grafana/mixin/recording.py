"""Recording rules: a few series a model, whatever the number of pods, for remote write, Thanos or Mimir.

Ratios are joined by `max` or `min`, never summed; only counts of things are summed.
"""

from grafana.mixin.rules import Group, Recording

_MODEL = "cluster, namespace, model_name"


def _model(operation: str, metric: str, selector: str = "", also: str = "") -> Recording:
    by = _MODEL + (f", {also}" if also else "")
    return Recording(f"model:{metric}:{operation}", f"{operation} by ({by}) ({metric}{selector})")


def group() -> Group:
    """The fleet's series."""
    h = "vllm_headroom_"
    return Group(
        "fleet",
        "30s",
        (
            _model("max", h + "kv_used_ratio_peak"),
            _model("max", h + "oom_probability", '{risk="kv"}', "horizon_seconds"),
            _model("min", h + "time_to_exhaustion_seconds", '{risk="kv"}'),
            _model("max", h + "kv_demand_ratio", '{quantile="0.9"}', "horizon_seconds"),
            _model("max", h + "kv_offered_load_ratio"),
            _model("sum", h + "kv_tokens"),
            _model("sum", h + "kv_requests"),
            _model("sum", h + "kv_capacity_tokens", "", "source"),
            _model("sum", h + "requests", "", "state"),
            _model("sum", h + "state", "", "state"),
            _model("sum", h + "preemptions_per_second"),
            _model("max", h + "preemptions_per_finished_request"),
            _model("sum", h + "recomputed_tokens_per_second"),
            Recording(
                "namespace:vllm_headroom_device_bytes:min", "min by (cluster, namespace) (vllm_headroom_device_bytes)"
            ),
            Recording(
                "namespace:vllm_headroom_oom_probability:max",
                "max by (cluster, namespace, risk, horizon_seconds) "
                '(vllm_headroom_oom_probability{risk=~"device|host"})',
            ),
            Recording(
                "namespace:vllm_headroom_host_bytes:min", "min by (cluster, namespace) (vllm_headroom_host_bytes)"
            ),
            Recording(
                "namespace:vllm_headroom_host_oom_kills:increase1h",
                "sum by (cluster, namespace) (increase(vllm_headroom_host_oom_kills_total[1h]))",
            ),
        ),
    )
