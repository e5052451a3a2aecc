"""Alerts about an engine that stands still, and about the monitor itself: silence is never good news."""

from grafana.mixin.rules import BY_SOURCE, ENGINE, WHERE, Alert, Group, number
from grafana.mixin.thresholds import Thresholds

_WAITING = number('vllm_headroom_requests{state="waiting"}', '"%.0f"')

_WRONG = 'increase(vllm_headroom_forecasts_total{outcome=~"miss|false_alarm"}[1d])'
_JUDGED = 'increase(vllm_headroom_forecasts_total{outcome=~"hit|miss|false_alarm"}[1d])'
_REASON = (
    "{{ with printf `vllm_headroom_source_down_reason{%s} == 1` $of | query }}"
    "{{ . | first | label `reason` }}{{ else }}unknown{{ end }}"
)


def group(t: Thresholds) -> Group:
    """The alerts of engines that stand still and of the monitor's own health."""
    return Group(
        "health",
        "15s",
        (
            Alert(
                "EngineStalled",
                "critical",
                'vllm_headroom_state{state="stalled"} == 1',
                summary=ENGINE + " is stalled: requests wait and none runs",
                evidence=_WAITING
                + " requests wait, none runs and no token has been generated for at least two minutes; /health "
                "may still answer 200.",
                impact="Every request sent to this engine hangs until its client gives up.",
                action="First: take it out of the load balancer and restart it (cost: the waiting requests and the load "
                "time). If it stalls again on the same request, compare that request's length with the pool's "
                "tokens: what is longer than the pool waits for ever; lower --max-model-len to refuse it.",
                hold="30s",
            ),
            Alert(
                "ServerNotStarted",
                "warning",
                """
                vllm_headroom_source_up{source="vllm"} == 0
                # exclusion: it has answered before, so it went down; that is another alert
                unless max_over_time(vllm_headroom_source_up{source="vllm"}[1d]) == 1
                """,
                summary="The vLLM server of " + WHERE + " has not come up",
                evidence="Its page has not answered once in the 30 minutes that the exporter has watched (reason: "
                + _REASON
                + ").",
                impact="The replica takes no traffic; the others carry its share. A server that dies while it loads and "
                "starts again looks exactly like this.",
                action="First: read the server's last log before its restart (kubectl logs --previous). If it speaks of "
                "KV cache blocks or memory, `vllm-headroom plan` with its flags tells by how much it does not fit.",
                hold="30m",
                by=BY_SOURCE,
            ),
            Alert(
                "SourceDown",
                "warning",
                """
                vllm_headroom_source_up == 0
                # exclusion: what never answered is missing by set-up, or has not started
                and max_over_time(vllm_headroom_source_up[1d]) == 1
                """,
                summary="The source {{ $labels.source }} of " + WHERE + " stopped answering",
                evidence="The last good reading is "
                + number("vllm_headroom_source_age_seconds", "humanizeDuration")
                + " old (reason: "
                + _REASON
                + ").",
                impact="What this source tells is unknown from here on, and predictions made from it are mute. vllm: the "
                "server may be down. nvml: the container may have lost its devices.",
                action="First: run `vllm-headroom doctor` in the exporter's container: it names the source, the fault and "
                "the change to the manifest. For nvml after a reload of the container runtime: restart the pod "
                "(cost: the model's load time).",
                hold="2m",
                by=BY_SOURCE,
            ),
            Alert(
                "ExporterDown",
                "warning",
                'up{job=~".*vllm-headroom.*"} == 0',
                summary="The exporter of " + WHERE + " cannot be scraped",
                evidence="Prometheus has not reached {{ $labels.instance }} for at least 5 minutes.",
                impact="This replica is not watched: no prediction and no alert speaks for it.",
                action="First: kubectl describe pod, and the logs of the container vllm-headroom; then the network policy "
                "between Prometheus and its port (cost of looking: none).",
                hold="5m",
            ),
            Alert(
                "ExporterAbsent",
                "warning",
                "absent(vllm_headroom_build_info)",
                summary="No vllm-headroom exporter is known to this Prometheus",
                evidence="Not one exporter has been scraped in the last 10 minutes.",
                impact="No model is watched: silence means nothing until this is resolved.",
                action="First: look for vllm-headroom in Prometheus's targets page; if it is not there, the PodMonitor or "
                "scrape configuration is missing or not selected. Remove these rules where no exporter is meant to run.",
                hold="10m",
            ),
            Alert(
                "ExporterStale",
                "warning",
                f"""
                time() - vllm_headroom_last_tick_timestamp_seconds > {t.stale_seconds}
                """,
                summary="The exporter of " + WHERE + " answers but has stopped reading",
                evidence="Its last tick is {{ $value | humanizeDuration }} old.",
                impact="What it shows is the past: a full engine may look empty.",
                action="First: restart the exporter's container (cost: a minute of forecasts); keep its log. If the clocks "
                "of its node and of Prometheus differ by as much, correct the clock instead.",
                hold="2m",
            ),
            Alert(
                "ForecastUnreliable",
                "warning",
                f"""
                (
                  sum without (outcome) ({_WRONG}) / sum without (outcome) ({_JUDGED}) > {t.forecast_wrong_ratio}
                  # exclusion: too few to judge
                  and sum without (outcome) ({_JUDGED}) >= {t.forecast_events}
                )
                or vllm_headroom_forecast_calibration_error > {t.forecast_calibration_error}
                """,
                summary="The forecast of engine {{ $labels.engine }} of {{ $labels.model_name }} ("
                + WHERE
                + ") is unreliable",
                evidence="Since its start: "
                + number('vllm_headroom_forecasts_total{outcome="false_alarm"}', '"%.0f"')
                + " false alarms and "
                + number('vllm_headroom_forecasts_total{outcome="miss"}', '"%.0f"')
                + " misses beside "
                + number('vllm_headroom_forecasts_total{outcome="hit"}', '"%.0f"')
                + " hits; calibration error "
                + number("vllm_headroom_forecast_calibration_error", '"%.2f"')
                + ".",
                impact="KVExhaustionPredicted may cry wolf, or be silent, for this engine.",
                action="First: tell the exporter what it had to guess: --max-num-seqs, --max-num-batched-tokens and the "
                "model's config (cost: a restart of the exporter, not of vLLM). Until then trust PreemptionSpike, "
                "which measures and does not predict.",
                hold="30m",
                keep="15m",
            ),
            Alert(
                "CalibrationOff",
                "warning",
                f"""
                abs(vllm_headroom_kv_calibration_ratio - 1) > {t.capacity_error_ratio}
                """,
                summary="The KV arithmetic of {{ $labels.model_name }} (" + WHERE + ") does not match the engine",
                evidence="The engine's KV capacity is "
                + number("vllm_headroom_kv_calibration_ratio", '"%.2f"')
                + " times what the model's config gives.",
                impact="Headroom in tokens, requests and bytes, and the gain of each lever, are off by that much; the "
                "engine's own usage and the measured alerts are not.",
                action="First: check that the exporter reads the config of the model that is served (--model-config) and "
                "has the server's --tensor-parallel-size (cost: a restart of the exporter). If both are right, "
                "report the architecture.",
                hold="15m",
            ),
        ),
    )
