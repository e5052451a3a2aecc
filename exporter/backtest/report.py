"""The report of a backtest: one HTML file that needs nothing else."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from exporter.backtest.replaying import FORECAST, History, around
from exporter.backtest.scoring import Score, onsets_of
from exporter.backtest.timeline import timeline
from exporter.web.markup import Markup, join, tag

STYLE = Markup("""
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1f;background:#fff}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .7rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}svg{width:100%;height:auto;margin:.3rem 0 1.5rem}
.frame{fill:#f6f6f8}polyline{fill:none;stroke-width:1.6}.usage{stroke:#0b62a4}.probability{stroke:#b3261e}
.alarm{fill:#b3261e}.preemption{stroke:#999;stroke-width:.6}.onset{stroke:#1b1b1f;stroke-width:1.4;stroke-dasharray:4 3}
.key span{margin-right:1.2rem}.u{color:#0b62a4}.p{color:#b3261e}
""")
COLUMNS = {
    "onsets": "onsets",
    "recall": "warned",
    "warned15": "warned 15 s ahead",
    "lead_p50": "median lead (s)",
    "precision": "precision",
    "calm": "calm seconds in alarm",
    "flaps": "alarms per hour",
    "skill": "skill",
    "auc": "AUC",
}
MOST_TIMELINES = 200


def report(histories: Sequence[History], scores: Mapping[str, Score], verdict: str, source: str) -> str:
    """The whole page; `verdict` is the sentence that decides the exit code."""
    body = join(
        tag("h1", "What the forecast would have told you"),
        tag("p", f"History from {source}."),
        tag("p", tag("strong", verdict)),
        _reading_note(histories),
        _table(scores),
        *[_engine(history) for history in histories],
    )
    head = join(Markup('<meta charset="utf-8">'), tag("title", "vllm-headroom backtest"), tag("style", STYLE))
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", body), lang="en")


def _reading_note(histories: Sequence[History]) -> Markup:
    slowest = max((h.interval for h in histories), default=0.0)
    if slowest < 2.5:
        return tag("p", "Read about once a second, as the daemon does.")
    note = f"This history was read about every {slowest:.0f} s; the daemon reads every second and warns earlier for it."
    return tag("p", note, class_="slow")


def _table(scores: Mapping[str, Score]) -> Markup:
    head = tag("tr", tag("th", "detector"), *[tag("th", title) for title in COLUMNS.values()])
    rows = [
        tag("tr", tag("td", name), *[tag("td", shown(getattr(score, column))) for column in COLUMNS])
        for name, score in scores.items()
    ]
    return tag("table", tag("thead", head), tag("tbody", *rows))


def shown(value: float | None) -> str:
    """A figure as the table and the terminal show it."""
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _engine(history: History) -> Markup:
    onsets = onsets_of(history.events)
    told = history.detectors[FORECAST]
    hours = history.moments[-1].time / 3600 if history.moments else 0.0
    summary = f"{len(onsets)} onsets in {hours:.1f} h, {len(history.events)} readings with preemptions."
    parts: list[Markup] = [tag("h2", history.name), tag("p", summary)]
    if onsets:
        key = join(
            tag("span", "usage", class_="u"),
            tag("span", "probability, and the alarm as a bar below", class_="p"),
            tag("span", "dashed: the onset; grey: preemptions"),
        )
        parts.append(tag("p", key, class_="key"))
    for onset in onsets[:MOST_TIMELINES]:
        warned = [time for time, _, alarm in told if alarm and onset - 60 <= time < onset]
        lead = f"alarm {onset - warned[0]:.0f} s ahead" if warned else "no alarm before it"
        at = datetime.fromtimestamp(history.began + onset, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        when = at if history.began > 1e8 else f"{onset:.0f} s after the start"
        parts += [tag("h3", f"{when}: {lead}"), timeline(list(around(history, onset)), history.events, onset)]
    if len(onsets) > MOST_TIMELINES:
        parts.append(tag("p", f"The first {MOST_TIMELINES} of {len(onsets)} onsets are drawn."))
    return join(*parts)
