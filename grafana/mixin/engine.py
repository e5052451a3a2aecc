"""The engine's dashboard: is it about to run out, and why."""

from grafana.mixin.layout import Dashboard, Row
from grafana.mixin.machine import exporter, gpu, host
from grafana.mixin.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
    Panel,
    Steps,
    Target,
    bars,
    field,
    fields,
    stat,
    timeseries,
)
from grafana.mixin.series import WHO, ahead, of_engine, of_pod, said_before
from grafana.mixin.thresholds import ALARM, ENGINE_DASHBOARD, Thresholds

STATES = {
    "ok": GREEN,
    "watch": YELLOW,
    "predicted": ORANGE,
    "exhausted": RED,
    "stalled": PURPLE,
    "asleep": BLUE,
    "unknown": GREY,
}
USED_STEPS: Steps = ((None, GREEN), (0.8, YELLOW), (0.95, RED))
PROBABILITY_STEPS: Steps = ((None, GREEN), (ALARM.watch, YELLOW), (ALARM.on, RED))


def dashboard(t: Thresholds) -> Dashboard:
    """One model's engines, or one engine, from the verdict down to the exporter."""
    rows = (
        Row("Is it about to run out?", (*_verdict(t), *_projection(t))),
        Row("Why?", _why(t)),
        Row("What is the load?", _load()),
        Row("The GPU", gpu()),
        Row("The host", host()),
        Row("The exporter itself", exporter(t)),
    )
    return Dashboard(ENGINE_DASHBOARD, "Is this vLLM engine about to run out of memory, and why?", rows)


def state_panel() -> Panel:
    """The states that the chosen engines are in, each in its colour."""
    return stat(
        "State",
        "What the KV pools of the chosen engines are doing, and how many engines do it. exhausted: preempting now; "
        "predicted: an alarm stands; stalled: requests wait and none runs.",
        (Target(f"sum by (state) ({of_engine('state')}) > 0", "{{state}}", instant=True),),
        text_mode="value_and_name",
        graph="none",
        colour="fixed",
        empty="no engine",
        overrides=tuple(field(state, color=colour) for state, colour in STATES.items()),
    )


def _verdict(t: Thresholds) -> tuple[Panel, ...]:
    near = float(t.kv_near_seconds)
    return (
        state_panel(),
        stat(
            "KV runs out within 60 s",
            "Probability of at least one preemption for want of KV within a minute; the worst of the chosen engines. "
            f"The alarm goes on at {ALARM.on:.0%} and off below {ALARM.off:.0%}.",
            (Target(f"max({of_engine('oom_probability', risk='kv', horizon_seconds='60')})", "probability"),),
            unit="percentunit",
            steps=PROBABILITY_STEPS,
            low=0,
            high=1,
            decimals=0,
            empty="not known",
        ),
        stat(
            "KV runs out in",
            "Expected time until the KV pool of the nearest engine is full. The alert turns critical below "
            f"{t.kv_near_seconds} s.",
            (Target(f"min({of_engine('time_to_exhaustion_seconds', risk='kv')})", "time", instant=True),),
            unit="s",
            graph="none",
            steps=((None, RED), (near, ORANGE), (4 * near, GREEN)),
            decimals=0,
            empty="not in sight",
        ),
        stat(
            "Requests that still fit",
            "Typical requests of the present load that the fullest engine can still take.",
            (Target(f"min({of_engine('kv_requests')})", "requests"),),
            steps=((None, RED), (1, YELLOW), (5, GREEN)),
            decimals=1,
            empty="no load seen yet",
        ),
        stat(
            "GPU memory left",
            "What the next allocation outside the KV pool can take on the fullest GPU. The pool itself is reserved at "
            "the start, so a card that looks full is as it was set up.",
            (Target(f"min({of_pod('device_bytes')})", "free"),),
            unit="bytes",
            steps=((None, RED), (2.0**28, YELLOW), (2.0**30, GREEN)),
            decimals=1,
            empty="GPU not visible",
        ),
        stat(
            "Host memory left",
            "Bytes below the container's memory limit, of the pod that has fewest.",
            (Target(f"min({of_pod('host_bytes')})", "left"),),
            unit="bytes",
            steps=((None, RED), (2.0**30, YELLOW), (4 * 2.0**30, GREEN)),
            decimals=1,
            empty="no limit",
        ),
    )


def _projection(t: Thresholds) -> tuple[Panel, ...]:
    demand = {
        "unit": "percentunit",
        "low": 0,
        "height": 10,
        "steps": ((None, GREEN), (1.0, RED)),
        "limit": True,
        "soft": 1.1,
    }
    return (
        timeseries(
            "KV pool: in use, and what was projected a minute before",
            "In use now, the highest second of the last minute, and the demand that was projected for this moment one "
            "minute ago (nine times in ten the demand is below the upper line). Above 100% the engine preempts.",
            (
                Target(of_engine("kv_used_ratio"), f"in use {WHO}"),
                Target(of_engine("kv_used_ratio_peak"), f"peak {WHO}"),
                Target(f"max({said_before('0.5')})", "projected a minute before"),
                Target(f"max({said_before('0.9')})", "projected, 9 in 10 below"),
            ),
            width=16,
            overrides=(
                fields("^peak", custom_lineWidth=1, custom_fillOpacity=0),
                fields(
                    "^projected",
                    custom_lineWidth=1,
                    custom_fillOpacity=0,
                    custom_lineStyle={"fill": "dash", "dash": [6, 4]},
                ),
                field("projected a minute before", color=ORANGE),
                field("projected, 9 in 10 below", color=RED),
            ),
            **demand,
        ),
        timeseries(
            "The next two minutes",
            "Drawn ahead of now: the KV demand that the newest projection expects of the fullest engine, as a share of "
            "its pool, and the level it stays below nine times in ten.",
            (Target(ahead("0.5"), "expected"), Target(ahead("0.9"), "9 in 10 below")),
            width=8,
            time_from="+2m",
            empty="no projection",
            overrides=(
                field("expected", color=ORANGE, custom_lineWidth=3),
                field("9 in 10 below", color=RED, custom_lineWidth=1, custom_fillOpacity=12),
            ),
            **demand,
        ),
        timeseries(
            "Probability that KV runs out, by horizon",
            "Within 15, 30, 60 and 120 seconds; the worst of the chosen engines. The alarm speaks of 60 seconds.",
            (
                Target(
                    f"max by (horizon_seconds) ({of_engine('oom_probability', risk='kv')})",
                    "within {{horizon_seconds}} s",
                ),
            ),
            unit="percentunit",
            low=0,
            high=1,
            steps=((None, GREEN), (ALARM.on, RED)),
            limit=True,
        ),
        timeseries(
            "Preemptions",
            "Requests thrown out of the KV pool each second, over the last minute. Each starts again from its first token.",
            (Target(of_engine("preemptions_per_second"), WHO),),
            unit="ops",
            low=0,
            bars=True,
            steps=((None, GREEN), (float(t.spike_per_second), RED)),
            limit=True,
            soft=float(t.spike_per_second) * 1.5,
            colour="fixed",
            overrides=(fields(".*", color=RED),),
        ),
    )


def _why(t: Thresholds) -> tuple[Panel, ...]:
    return (
        stat(
            "What drives it",
            "The load that the risk comes from. sequence_cap: --max-num-seqs holds the load back, not the pool.",
            (Target(f"sum by (driver) ({of_engine('risk_driver')}) > 0", "{{driver}}", instant=True),),
            text_mode="name",
            graph="none",
            colour="fixed",
            overrides=(fields(".*", color=ORANGE), field("none", color=GREEN)),
            width=6,
            height=8,
            empty="nothing yet",
        ),
        bars(
            "What each lever would buy",
            "Estimated KV capacity or demand after pulling a lever, over now: above 1 the pool grows, below 1 the demand "
            "shrinks.",
            (Target(f"avg by (lever) ({of_engine('lever_gain_ratio')})", "{{lever}}", instant=True),),
            unit="none",
            decimals=2,
            low=0,
            width=9,
            steps=((None, BLUE), (1.0, GREEN)),
            empty="not known",
        ),
        timeseries(
            "Offered load over capacity",
            "KV that the present arrivals need in the long run. From 100% on, preemption is a matter of time, whatever the "
            "pool looks like now.",
            (Target(of_engine("kv_offered_load_ratio"), WHO),),
            unit="percentunit",
            low=0,
            width=9,
            steps=((None, GREEN), (float(t.offered_load_ratio), RED)),
            limit=True,
            soft=1.2,
            empty="no arrivals yet",
        ),
        timeseries(
            "Preemptions per finished request",
            "Below 0.1 an engine is full and healthy; above 0.5 it throws away more than it does.",
            (Target(of_engine("preemptions_per_finished_request"), WHO),),
            unit="none",
            low=0,
            width=12,
            steps=((None, GREEN), (float(t.healthy_preemption_ratio), YELLOW), (float(t.spike_per_request), RED)),
            limit=True,
            soft=float(t.spike_per_request) * 1.2,
            empty="nothing finished yet",
        ),
        timeseries(
            "Tokens computed again",
            "Tokens per second that preemption made the engine compute twice (estimated).",
            (Target(of_engine("recomputed_tokens_per_second"), WHO),),
            unit="short",
            low=0,
            width=12,
            empty="none",
        ),
    )


def _load() -> tuple[Panel, ...]:
    return (
        timeseries(
            "Requests",
            "Running, and waiting for KV blocks, for a free sequence or for anything else.",
            (
                Target(of_engine("requests", state="running"), f"running {WHO}"),
                Target(of_engine("requests", state="waiting"), f"waiting {WHO}"),
            ),
            unit="none",
            low=0,
            overrides=(fields("^waiting", color=ORANGE), fields("^running", color=BLUE)),
        ),
        timeseries(
            "Blocks of a typical request",
            "KV blocks that a typical request of the present load holds at its end. When it rises, the same number of "
            "requests needs more of the pool.",
            (Target(of_engine("kv_blocks_per_request"), WHO),),
            unit="none",
            low=0,
            empty="nothing finished yet",
        ),
    )
