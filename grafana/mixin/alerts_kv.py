"""Alerts about the KV pool: what is coming, what is happening, what will keep happening."""

from grafana.mixin.rules import BLIND, ENGINE, QUIET, Alert, Group, number
from grafana.mixin.thresholds import Thresholds

_USED = number('vllm_headroom_kv_used_ratio_peak{window_seconds="60"}', "humanizePercentage")
_PROBABILITY = number('vllm_headroom_oom_probability{risk="kv",horizon_seconds="60"}', "humanizePercentage")
_SECONDS = number('vllm_headroom_time_to_exhaustion_seconds{risk="kv"}', "humanizeDuration")
_WAITING = number('vllm_headroom_requests{state="waiting"}', '"%.0f"')
_RUNNING = number('vllm_headroom_requests{state="running"}', '"%.0f"')
_PER_REQUEST = number("vllm_headroom_preemptions_per_finished_request", '"%.2f"')
_PER_SECOND = number("vllm_headroom_preemptions_per_second", '"%.2f"')
_RECOMPUTED = number("vllm_headroom_recomputed_tokens_per_second", '"%.0f"')

_SHED = (
    "First: send this model's new requests to another replica, or start one. If there is none: restart with "
    "--max-num-seqs lowered to about {running} (cost: the excess waits in the queue, but what runs is not thrown away). "
    "For good: --kv-cache-dtype fp8 (about twice the tokens; check the model's quality) or a higher "
    "--gpu-memory-utilization where the GPU has room. Never lower it: that shrinks the pool."
)
SHED = _SHED.format(running=_RUNNING)


def _predicted(t: Thresholds, extra: str = "") -> str:
    return f"""
        (
          vllm_headroom_oom_predicted{{risk="kv"}} == 1{extra}
        )
        # level: the pool is in use, as the one-second readings saw it
        and ignoring (risk, window_seconds) vllm_headroom_kv_used_ratio_peak >= {t.kv_level_ratio}
        # trend: the present load will need the whole of it
        and ignoring (risk, quantile)
          max without (horizon_seconds) (vllm_headroom_kv_demand_ratio{{quantile="0.9"}}) >= {t.kv_demand_ratio}
        # exclusion: full, but it gets its work done
        unless ignoring (risk)
          (vllm_headroom_preemptions_per_finished_request < {t.healthy_preemption_ratio} and vllm_headroom_preemptions_per_second > 0)
        # exclusion: nothing is known of an engine that sleeps, hangs or cannot be read
        unless ignoring (risk, state) {QUIET}
        unless ignoring (risk, model_name, engine, source) {BLIND}
    """


def group(t: Thresholds) -> Group:
    """The alerts of the KV pool."""
    near = f"""
          and ignoring (risk) (
            # near, or already there
              sum without (risk) (vllm_headroom_time_to_exhaustion_seconds{{risk="kv"}}) < {t.kv_near_seconds}
            or
              vllm_headroom_preemptions_per_second > 0
          )"""
    return Group(
        "kv",
        "5s",
        (
            Alert(
                "KVExhaustionPredicted",
                "warning",
                _predicted(t),
                summary=ENGINE + " will run out of KV cache within about a minute",
                evidence="Probability "
                + _PROBABILITY
                + " within 60 s, expected in "
                + _SECONDS
                + "; KV peak of the last minute "
                + _USED
                + ", "
                + _RUNNING
                + " requests running, "
                + _WAITING
                + " waiting.",
                impact="The engine will preempt: the last admitted requests lose their KV and start again from their "
                "first token, so their latency multiplies and throughput falls while the GPU looks busy.",
                action=SHED,
            ),
            Alert(
                "KVExhaustionPredicted",
                "critical",
                _predicted(t, near),
                summary=ENGINE + " is running out of KV cache now",
                evidence="Probability "
                + _PROBABILITY
                + " within 60 s, expected in "
                + _SECONDS
                + "; KV peak of the last minute "
                + _USED
                + ", "
                + _PER_SECOND
                + " preemptions/s, "
                + _PER_REQUEST
                + " per finished request, "
                + _WAITING
                + " requests waiting.",
                impact="Preemption is seconds away or under way: requests are recomputed from their first token and "
                "time to first token of everything behind them grows without bound while the overload lasts.",
                action=SHED,
            ),
            Alert(
                "PreemptionSpike",
                "critical",
                f"""
                vllm_headroom_preemptions_per_second >= {t.spike_per_second}
                # level: the pool is full, and requests wait for it
                and ignoring (window_seconds) vllm_headroom_kv_used_ratio_peak >= {t.spike_used_ratio}
                and ignoring (state) vllm_headroom_requests{{state="waiting"}} > 0
                # exclusion: a preemption now and then beside many finished requests is healthy
                unless vllm_headroom_preemptions_per_finished_request < {t.spike_per_request}
                unless ignoring (state) {QUIET}
                unless ignoring (model_name, engine, source) {BLIND}
                """,
                summary=ENGINE + " preempts instead of finishing",
                evidence='{{ $value | printf "%.2f" }} preemptions/s, '
                + _PER_REQUEST
                + " per finished request (healthy: below 0.1); about "
                + _RECOMPUTED
                + " tokens/s are computed again; KV peak "
                + _USED
                + ", "
                + _WAITING
                + " requests waiting.",
                impact="Work is thrown away as fast as it is done. Clients see stalled streams and timeouts, and their "
                "retries add load.",
                action=SHED,
                hold="1m",
            ),
            Alert(
                "PreemptionsSustained",
                "warning",
                f"""
                vllm_headroom_preemptions_per_second > 0
                # exclusion: healthy beside what finishes
                unless vllm_headroom_preemptions_per_finished_request < {t.healthy_preemption_ratio}
                unless ignoring (state) {QUIET}
                unless ignoring (model_name, engine, source) {BLIND}
                """,
                summary=ENGINE + " has been preempting for 15 minutes",
                evidence='{{ $value | printf "%.2f" }} preemptions/s, '
                + _PER_REQUEST
                + " per finished request; about "
                + _RECOMPUTED
                + " tokens/s are computed again.",
                impact="A steady share of the GPU recomputes what it had already computed; tail latency is several "
                "times the median.",
                action="First: lower --max-num-seqs below the present " + _RUNNING + " running requests (cost: more "
                "waiting, less waste). For good: --kv-cache-dtype fp8, a higher --gpu-memory-utilization, "
                "or more replicas; `vllm-headroom plan` tells what each would buy.",
                hold="15m",
            ),
            Alert(
                "OfferedLoadOverCapacity",
                "warning",
                f"""
                # trend: the arrivals of the last minutes need more KV than there is
                vllm_headroom_kv_offered_load_ratio >= {t.offered_load_ratio}
                # level: and the pool shows it
                and ignoring (window_seconds) vllm_headroom_kv_used_ratio_peak >= {t.offered_used_ratio}
                # exclusion: the sequence limit holds the load back before the pool does
                unless ignoring (driver) vllm_headroom_risk_driver{{driver="sequence_cap"}} == 1
                unless ignoring (state) {QUIET}
                unless ignoring (model_name, engine, source) {BLIND}
                """,
                summary=ENGINE + " is offered more than its KV cache can hold in the long run",
                evidence="Offered load {{ $value | humanizePercentage }} of capacity; KV peak "
                + _USED
                + ", "
                + _WAITING
                + " requests waiting.",
                impact="Preemption is a matter of time, and the queue grows for as long as this lasts.",
                action="First: add a replica or route part of the traffic away; no flag makes an overload fit that "
                "lasts. --kv-cache-dtype fp8 about doubles the pool (cost: check the model's quality); a lower "
                "--max-model-len refuses the longest requests (cost: those clients see an error).",
                hold="10m",
            ),
        ),
    )
