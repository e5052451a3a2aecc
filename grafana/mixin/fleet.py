"""The fleet's dashboard: which engines are worst, where is room, and where should traffic go."""

from grafana.mixin.engine import PROBABILITY_STEPS, USED_STEPS, state_panel
from grafana.mixin.layout import Dashboard, Row
from grafana.mixin.panels import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Panel,
    Target,
    bars,
    field,
    fields,
    stat,
    table,
    timeseries,
)
from grafana.mixin.series import of_engine, of_pod
from grafana.mixin.thresholds import ENGINE_DASHBOARD, FLEET_DASHBOARD, MEMORY_ALARM, Thresholds

_ENGINE = "namespace, model_name, pod, engine"
_WHO = "{{pod}} {{engine}}"
_MODEL = 'namespace=~"$namespace", model_name=~"$model"'


def dashboard(t: Thresholds) -> Dashboard:
    """Many models, many pods: worst first."""
    rows = (
        Row("Is anyone about to run out?", _summary()),
        Row("Who is worst?", (_worst(),)),
        Row("Where is room, and where should traffic go?", _room()),
        Row("How is each model doing?", _models(t)),
        Row("GPUs and hosts", _memory()),
    )
    return Dashboard(
        FLEET_DASHBOARD, "Every engine of the fleet, worst first, and where there is room.", rows, span="now-1h"
    )


def _summary() -> tuple[Panel, ...]:
    alerts = 'ALERTS{alertname=~"VLLMHeadroom.+", alertstate="firing", namespace=~"$namespace"'
    return (
        state_panel().at(8, 4),
        stat(
            "Alerts firing",
            "Alerts of these rules that fire now: those that page, and those that warn.",
            (
                Target(f'count({alerts}, severity="critical"}}) or vector(0)', "critical", instant=True),
                Target(f'count({alerts}, severity="warning"}}) or vector(0)', "warning", instant=True),
            ),
            unit="none",
            graph="none",
            colour="fixed",
            text_mode="value_and_name",
            overrides=(field("critical", color=RED), field("warning", color=YELLOW)),
        ),
        stat(
            "Fullest KV pool",
            "The highest second of the last minute, of the fullest engine.",
            (Target(f"max({of_engine('kv_used_ratio_peak')})", "peak"),),
            unit="percentunit",
            decimals=0,
            low=0,
            high=1,
            steps=USED_STEPS,
            empty="no engine",
        ),
        stat(
            "Room in all pools",
            "Tokens that still fit into the KV pools of the chosen engines together.",
            (Target(f"sum({of_engine('kv_tokens')})", "tokens"),),
            decimals=1,
            graph="none",
            steps=((None, BLUE),),
            empty="not known",
        ),
        stat(
            "Not readable",
            "Exporters that cannot be scraped, and engines whose page cannot be read.",
            (
                Target(
                    'count(up{job=~".*vllm-headroom.*", namespace=~"$namespace"} == 0) or vector(0)',
                    "exporter",
                    instant=True,
                ),
                Target(f"count({of_pod('source_up', source='vllm')} == 0) or vector(0)", "vLLM page", instant=True),
            ),
            unit="none",
            graph="none",
            text_mode="value_and_name",
            steps=((None, GREEN), (1.0, RED)),
        ),
    )


def _worst() -> Panel:
    by = f"max by ({_ENGINE})"
    columns = (
        (
            "Within 60 s",
            f"{by} ({of_engine('oom_probability', risk='kv', horizon_seconds='60')})",
            "percentunit",
        ),
        ("Runs out in", f"{by} ({of_engine('time_to_exhaustion_seconds', risk='kv')})", "s"),
        ("KV peak", f"{by} ({of_engine('kv_used_ratio_peak')})", "percentunit"),
        ("Offered load", f"{by} ({of_engine('kv_offered_load_ratio')})", "percentunit"),
        ("Running", f"{by} ({of_engine('requests', state='running')})", "none"),
        ("Waiting", f"{by} ({of_engine('requests', state='waiting')})", "none"),
        ("Still fit", f"{by} ({of_engine('kv_requests')})", "none"),
        ("Preemptions/s", f"{by} ({of_engine('preemptions_per_second')})", "none"),
    )
    coloured = {"Within 60 s": PROBABILITY_STEPS, "KV peak": USED_STEPS, "Offered load": USED_STEPS}
    overrides = []
    for name, _, unit in columns:
        more = {}
        if name in coloured:
            steps = [{"value": value, "color": colour} for value, colour in coloured[name]]
            more = {
                "custom_cellOptions": {"type": "color-text"},
                "thresholds": {"mode": "absolute", "steps": steps},
            }
        overrides.append(field(name, unit=unit, decimals=2 if name == "Preemptions/s" else 0, custom_width=112, **more))
    link = f"/d/{ENGINE_DASHBOARD}?${{__url_time_range}}&var-datasource=${{datasource}}&var-pod=${{__value.raw}}"
    widths = {"Namespace": 120, "Model": 220, "Engine": 80}
    overrides += [field(name, custom_width=width) for name, width in widths.items()]
    overrides.append(field("Pod", links=[{"title": "This pod's engines", "url": link}]))
    names = {f"Value #{chr(ord('A') + i)}": name for i, (name, _, _) in enumerate(columns)}
    names |= {"namespace": "Namespace", "model_name": "Model", "pod": "Pod", "engine": "Engine"}
    order = ["namespace", "model_name", "pod", "engine", *(key for key in names if key.startswith("Value"))]
    return table(
        "Engines, worst first",
        "Every chosen engine by its probability of running out of KV within a minute. The pod links to its engines.",
        tuple(Target(expr, instant=True, table=True) for _, expr, _ in columns),
        height=9,
        empty="-",
        overrides=tuple(overrides),
        sort=[{"displayName": "Within 60 s", "desc": True}],
        transformations=(
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "indexByName": {name: i for i, name in enumerate(order)},
                    "renameByName": names,
                },
            },
            {"id": "sortBy", "options": {"sort": [{"field": "Within 60 s", "desc": True}]}},
        ),
    )


def _room() -> tuple[Panel, ...]:
    quiet = f"({of_engine('state', state='~ok|watch')} == 1)"
    return (
        bars(
            "Headroom map: share of the KV pool in use",
            "The fullest engines first, by the highest second of the last minute.",
            (Target(f"topk(12, max by ({_ENGINE}) ({of_engine('kv_used_ratio_peak')}))", _WHO, instant=True),),
            unit="percentunit",
            low=0,
            high=1,
            decimals=0,
            steps=USED_STEPS,
            empty="no engine",
        ),
        bars(
            "Move traffic to",
            "Engines that are not at risk and still fit most requests of their present load. Those that are full, stalled "
            "or asleep are left out.",
            (
                Target(
                    f"topk(12, max by ({_ENGINE}) ({of_engine('kv_requests')} and ignoring (state) {quiet}))",
                    _WHO,
                    instant=True,
                ),
            ),
            unit="none",
            low=0,
            decimals=0,
            colour="continuous-blues",
            empty="no engine has room",
        ),
        timeseries(
            "Share of the KV pool in use, fullest engines",
            "The five fullest engines at each moment, by the highest second of the minute before.",
            (Target(f"topk(5, max by ({_ENGINE}) ({of_engine('kv_used_ratio_peak')}))", _WHO),),
            unit="percentunit",
            low=0,
            high=1,
            steps=USED_STEPS,
            width=24,
        ),
    )


def _models(t: Thresholds) -> tuple[Panel, ...]:
    h = "vllm_headroom_"
    return (
        timeseries(
            "Offered load over capacity, worst engine of each model",
            "From 100% on, preemption is a matter of time and the model needs another replica.",
            (Target(f"model:{h}kv_offered_load_ratio:max{{{_MODEL}}}", "{{namespace}} {{model_name}}"),),
            unit="percentunit",
            low=0,
            width=8,
            steps=((None, GREEN), (float(t.offered_load_ratio), RED)),
            limit=True,
            soft=1.2,
            empty="no arrivals yet, or no recording rules",
        ),
        timeseries(
            "Requests that still fit, whole model",
            "Typical requests of the present load, summed over the model's engines.",
            (Target(f"model:{h}kv_requests:sum{{{_MODEL}}}", "{{namespace}} {{model_name}}"),),
            unit="none",
            low=0,
            width=8,
            empty="no load yet, or no recording rules",
        ),
        timeseries(
            "Preemption budget in use",
            f"Share of the last hour with harmful preemptions, of the model's worst engine. The objective allows 1%; the fast "
            f"alert goes off at {float(t.slo_fast_burn) * float(t.slo_budget_ratio):.1%}.",
            (Target(f"model:{h}preempting:max_avg_1h{{{_MODEL}}}", "{{namespace}} {{model_name}}"),),
            unit="percentunit",
            low=0,
            width=8,
            steps=((None, GREEN), (float(t.slo_fast_burn) * float(t.slo_budget_ratio), RED)),
            limit=True,
            soft=2 * float(t.slo_fast_burn) * float(t.slo_budget_ratio),
            empty="no recording rules",
        ),
    )


def _memory() -> tuple[Panel, ...]:
    return (
        bars(
            "GPU memory left outside the KV pool, fullest GPUs first",
            "What the next allocation can take. Little is normal with a high --gpu-memory-utilization; falling is not.",
            (Target(f"bottomk(12, {of_pod('device_bytes')})", "{{pod}} GPU {{gpu}}", instant=True),),
            unit="bytes",
            low=0,
            steps=((None, RED), (2.0**28, YELLOW), (2.0**30, GREEN)),
            empty="no GPU visible",
        ),
        timeseries(
            "Probability that a GPU or a container runs out",
            "Within the hour; the worst of the namespace.",
            (
                Target(
                    'namespace:vllm_headroom_oom_probability:max{namespace=~"$namespace", horizon_seconds="3600"}',
                    "{{namespace}} {{risk}}",
                ),
            ),
            unit="percentunit",
            low=0,
            high=1,
            steps=((None, GREEN), (MEMORY_ALARM, RED)),
            limit=True,
            empty="no GPU or container visible, or no recording rules",
            overrides=(fields("host$", color=ORANGE), fields("device$", color=BLUE)),
        ),
    )
