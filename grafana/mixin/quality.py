"""The dashboard of the forecast's own score: can it be believed, and how early does it speak."""

from grafana.mixin.layout import Dashboard, Row
from grafana.mixin.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    YELLOW,
    Panel,
    Target,
    bars,
    field,
    fields,
    stat,
    timeseries,
)
from grafana.mixin.series import WHO, of_engine, said_before
from grafana.mixin.thresholds import ALARM, QUALITY_DASHBOARD, Thresholds

_ALERT = 'alertname="VLLMHeadroomKVExhaustionPredicted", alertstate="firing", namespace=~"$namespace", pod=~"$pod"'
_OUTCOMES = {"hit": GREEN, "miss": RED, "false_alarm": ORANGE, "correct_quiet": GREY}
OF_ALARM = "2m"
"""How far back an alarm is looked for before a preemption."""


def dashboard(t: Thresholds) -> Dashboard:
    """How often it was right, how honest its probabilities are, how early it spoke."""
    rows = (
        Row("Can it be believed?", (*_score(t), _outcomes())),
        Row("Does it say what then happens?", _calibration(t)),
        Row("How early does it speak?", _lead()),
    )
    text = "The forecast keeps its own score: what came true, how honest its probabilities are, how early it spoke."
    return Dashboard(QUALITY_DASHBOARD, text, rows, span="now-6h")


def _rise(outcomes: str) -> str:
    return f"sum(increase({of_engine('forecasts_total', outcome=outcomes)}[$__range]))"


def _score(t: Thresholds) -> tuple[Panel, ...]:
    hits, alarms, onsets = _rise("hit"), _rise("~hit|false_alarm"), _rise("~hit|miss")
    share = {"unit": "percentunit", "decimals": 0, "low": 0, "high": 1, "graph": "none", "height": 5}
    bands = ((None, RED), (0.5, YELLOW), (0.8, GREEN))
    return (
        stat(
            "Alarms that came true",
            "Precision over the time shown: of the alarms, the share that a preemption followed within the horizon.",
            (Target(f"{hits} / ({alarms} > 0)", "precision", instant=True),),
            steps=bands,
            empty="no alarm yet",
            **share,
        ),
        stat(
            "Exhaustions foreseen",
            "Recall over the time shown: of the exhaustions, the share that an alarm came before.",
            (Target(f"{hits} / ({onsets} > 0)", "recall", instant=True),),
            steps=bands,
            empty="no exhaustion yet",
            **share,
        ),
        stat(
            "Calibration error",
            f"Mean distance of forecast probabilities from what happened, over the last day. Above "
            f"{t.forecast_calibration_error} the forecast counts as unreliable.",
            (Target(f"max({of_engine('forecast_calibration_error')})", "error"),),
            unit="none",
            decimals=3,
            low=0,
            height=5,
            steps=(
                (None, GREEN),
                (float(t.forecast_calibration_error) / 2, YELLOW),
                (float(t.forecast_calibration_error), RED),
            ),
            empty="too few forecasts",
        ),
    )


def _outcomes() -> Panel:
    return bars(
        "Forecasts by outcome",
        "hit: an alarm that a preemption followed; miss: a preemption without alarm; false_alarm: an alarm that nothing "
        "followed; correct_quiet: quiet, and rightly.",
        (
            Target(
                f"sum by (outcome) (increase({of_engine('forecasts_total')}[$__range]))", "{{outcome}}", instant=True
            ),
        ),
        unit="none",
        decimals=0,
        low=0,
        width=12,
        height=5,
        colour="fixed",
        overrides=tuple(field(name, color=colour) for name, colour in _OUTCOMES.items()),
        empty="nothing judged yet",
    )


def _calibration(t: Thresholds) -> tuple[Panel, ...]:
    return (
        timeseries(
            "What was projected a minute before, and what came",
            "KV in use by the fullest of the chosen engines, beside the demand that was projected for this moment 60 s earlier: "
            "expected, and the level it should stay below nine times in ten. Demand above 100% shows as a full pool. Choose one "
            "pod to judge one engine.",
            (
                Target(f"max({of_engine('kv_used_ratio')})", "in use"),
                Target(f"max({said_before('0.5')})", "expected"),
                Target(f"max({said_before('0.9')})", "9 in 10 below"),
            ),
            unit="percentunit",
            low=0,
            width=24,
            height=9,
            steps=((None, GREEN), (1.0, RED)),
            limit=True,
            overrides=(
                fields("^in use", color=BLUE, custom_fillOpacity=15),
                fields("^expected", color=ORANGE, custom_lineWidth=1, custom_fillOpacity=0),
                fields(
                    "^9 in 10",
                    color=RED,
                    custom_lineWidth=1,
                    custom_fillOpacity=0,
                    custom_lineStyle={"fill": "dash", "dash": [6, 4]},
                ),
            ),
        ),
        timeseries(
            "Probability, and the alarm made of it",
            f"Probability within 60 s; the alarm (0 or 1) goes on at {ALARM.on:.0%} and off below {ALARM.off:.0%}.",
            (
                Target(of_engine("oom_probability", risk="kv", horizon_seconds="60"), WHO),
                Target(f"max({of_engine('oom_predicted', risk='kv')})", "alarm"),
            ),
            unit="percentunit",
            low=0,
            high=1,
            overrides=(
                fields(
                    "^alarm", color=RED, custom_lineWidth=0, custom_fillOpacity=20, custom_lineInterpolation="stepAfter"
                ),
            ),
        ),
        timeseries(
            "Calibration error over time",
            "A forecast that says 70% should come true seven times in ten.",
            (Target(of_engine("forecast_calibration_error"), WHO),),
            unit="none",
            low=0,
            decimals=2,
            steps=((None, GREEN), (float(t.forecast_calibration_error), RED)),
            limit=True,
            soft=2 * float(t.forecast_calibration_error),
            empty="too few forecasts to judge",
        ),
    )


def _lead() -> tuple[Panel, ...]:
    quiet_alarm = (
        f"({of_engine('oom_predicted', risk='kv')} * ignoring (risk) ({of_engine('preemptions_per_second')} == bool 0))"
    )
    return (
        timeseries(
            "Lead: how long the alarm stood before the preemptions",
            f"While an engine preempts: seconds of the last {OF_ALARM.removesuffix('m')} minutes in which the alarm stood and "
            "nothing was preempted yet. It is read every 5 s, so it is right to about that.",
            (
                Target(
                    f"5 * sum_over_time({quiet_alarm}[{OF_ALARM}:5s]) and ignoring (risk) {of_engine('preemptions_per_second')} > 0",
                    WHO,
                ),
            ),
            unit="s",
            low=0,
            empty="no preemption in this time",
        ),
        timeseries(
            "Alerts and preemptions",
            "When the alert was firing, by severity, and preemptions per second: the bars should begin after the areas.",
            (
                Target(f'count(ALERTS{{{_ALERT}, severity="warning"}}) or vector(0)', "warning"),
                Target(f'count(ALERTS{{{_ALERT}, severity="critical"}}) or vector(0)', "critical"),
                Target(f"sum({of_engine('preemptions_per_second')})", "preemptions"),
            ),
            unit="none",
            low=0,
            soft=2,
            overrides=(
                fields(
                    "^(warning|critical)",
                    custom_lineWidth=0,
                    custom_fillOpacity=25,
                    custom_lineInterpolation="stepAfter",
                ),
                field("warning", color=YELLOW),
                field("critical", color=RED),
                fields("^preemptions", unit="ops", custom_axisPlacement="right", custom_axisSoftMax=1, color=BLUE),
            ),
        ),
    )
