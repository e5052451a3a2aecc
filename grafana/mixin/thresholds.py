"""Every number an alert compares with, in one place: the rules, the dashboards' colours and the chart share them."""

from dataclasses import dataclass, field, fields

from exporter.forecast.alarm import AlarmRule

REPOSITORY = "https://github.com/vllm-headroom/vllm-headroom"
RUNBOOKS = REPOSITORY + "/blob/main/docs/runbooks"
ENGINE_DASHBOARD, FLEET_DASHBOARD, QUALITY_DASHBOARD = (
    "vllm-headroom-engine",
    "vllm-headroom-fleet",
    "vllm-headroom-quality",
)
"""The dashboards' uids, which links use."""

ALARM = AlarmRule()
"""The exporter's own alarm of the KV pool: the dashboards draw their lines where it goes on."""
MEMORY_ALARM = 0.5
"""Where its alarm of GPU and host memory goes on."""


def _value(default: str, meaning: str) -> str:
    value: str = field(default=default, metadata={"meaning": meaning})
    return value


@dataclass(frozen=True, slots=True)
class Thresholds:
    """PromQL numbers and durations. They are texts, so that a template can stand in their place."""

    kv_level_ratio: str = _value("0.3", "Below this peak use of the KV pool no exhaustion is announced.")
    kv_demand_ratio: str = _value("0.9", "KV demand (0.9 quantile, any horizon) over capacity that counts as a trend.")
    kv_near_seconds: str = _value("30", "Expected seconds to KV exhaustion from which the prediction pages.")
    healthy_preemption_ratio: str = _value("0.1", "Preemptions per finished request below which nobody is told.")
    spike_per_second: str = _value("0.2", "Preemptions per second that can be a spike.")
    spike_per_request: str = _value("0.5", "Preemptions per finished request that make it one.")
    spike_used_ratio: str = _value("0.95", "Peak use of the KV pool without which preemptions are not for want of KV.")
    offered_load_ratio: str = _value("1", "Long-run KV demand of the arrivals over capacity that is too much.")
    offered_used_ratio: str = _value("0.7", "Peak use of the KV pool that must bear the overload out.")
    device_fallen_ratio: str = _value(
        "0.95", "Device headroom over its highest of the last hour that counts as falling."
    )
    host_left_ratio: str = _value(
        "0.25", "Host headroom over the container's limit, or the machine's memory, that counts as low."
    )
    forecast_wrong_ratio: str = _value("0.5", "Wrong forecasts over all alarms and onsets of a day that is unreliable.")
    forecast_events: str = _value("10", "Alarms and onsets of a day below which no judgement is made.")
    forecast_calibration_error: str = _value("0.2", "Mean error of forecast probabilities that is unreliable.")
    capacity_error_ratio: str = _value("0.1", "Difference of the engine's KV capacity from the model's arithmetic.")
    stale_seconds: str = _value("30", "Age of the last tick from which the exporter counts as stale.")
    slo_budget_ratio: str = _value("0.01", "Share of time with harmful preemptions that the objective allows.")
    slo_fast_burn: str = _value("14.4", "Burn rate over 1 h and 5 m that pages.")
    slo_slow_burn: str = _value("6", "Burn rate over 6 h and 30 m that warns.")

    @classmethod
    def placeholders(cls) -> "Thresholds":
        """Every threshold as `@name@`, for a template that is filled in elsewhere."""
        return cls(**{f.name: f"@{f.name}@" for f in fields(cls)})

    @classmethod
    def reference(cls) -> dict[str, dict[str, str]]:
        """Name → its default and its meaning."""
        return {f.name: {"default": str(f.default), "meaning": f.metadata["meaning"]} for f in fields(cls)}
