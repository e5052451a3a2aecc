"""How dashboards ask for series: the variables' matchers, and the pieces that several panels share."""

from collections.abc import Mapping

_PLACE = 'namespace=~"$namespace", pod=~"$pod"'
_ENGINE = 'namespace=~"$namespace", model_name=~"$model", pod=~"$pod"'
WHO = "{{pod}} {{engine}}"
WHOSE_GPU = "{{pod}} GPU {{gpu}}"


def of_engine(name: str, **labels: str) -> str:
    """A family of the page, for the chosen engines. A label's value that begins with ~ is a pattern."""
    return f"vllm_headroom_{name}{{{', '.join((_ENGINE, *_matchers(labels)))}}}"


def of_pod(name: str, **labels: str) -> str:
    """A family of GPU, host or exporter, for the chosen pods; a `process_` family is the exporter's own process."""
    whole = name if name.startswith("process_") else f"vllm_headroom_{name}"
    return f"{whole}{{{', '.join((_PLACE, *_matchers(labels)))}}}"


def _matchers(labels: Mapping[str, str]) -> list[str]:
    return [f'{k}=~"{v[1:]}"' if v.startswith("~") else f'{k}="{v}"' for k, v in labels.items()]


def ahead(quantile: str) -> str:
    """The newest projection for each moment ahead: what was said for it 15, 30, 60 or 120 s before, in this order."""

    def said(horizon: int, window: str) -> str:
        metric = of_engine("kv_demand_ratio", quantile=quantile, horizon_seconds=str(horizon))
        return f"max without (horizon_seconds) (last_over_time({metric}[{window}] offset {horizon}s))"

    return (
        "max(" + " or ".join((said(15, "20s"), said(30, "20s"), said(60, "30s"), said(120, "$__rate_interval"))) + ")"
    )


def said_before(quantile: str, horizon: int = 60) -> str:
    """What was projected for this moment `horizon` seconds ago."""
    metric = of_engine("kv_demand_ratio", quantile=quantile, horizon_seconds=str(horizon))
    return f"{metric} offset {horizon}s"


_BY = "by (namespace, pod, instance)"


def memory(kind: str) -> str:
    """One kind of memory of the chosen GPUs."""
    return of_pod("device_memory_bytes", kind=kind)


def gpu_memory() -> dict[str, str]:
    """The memory of the chosen GPUs, part by part, in bytes. Each GPU holds one rank's weights and KV pool."""
    gpus = f"count {_BY} ({memory('total')})"
    pool = f"max without (source) ({of_engine('kv_capacity_bytes')})"
    weights = f"sum(avg {_BY} ({of_engine('weight_bytes')}) * {gpus})"
    kv = f"sum(avg {_BY} ({pool}) * {gpus})"
    used = f"sum(avg {_BY} ({pool} * {of_engine('kv_used_ratio')}) * {gpus})"
    held, others = f"sum({memory('used')})", f"sum({memory('other_processes')})"
    return {
        "weights": weights,
        "KV in use": used,
        "KV free": f"{kv} - {used}",
        "rest of vLLM": f"clamp_min({held} - {kv} - ({weights} or vector(0)) - ({others} or vector(0)), 0)",
        "neighbours": others,
        "reserved by the driver": f"sum({memory('reserved')})",
        "free": f"sum({memory('free')})",
    }
