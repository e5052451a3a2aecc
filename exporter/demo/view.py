"""The demo in a live terminal: pool, headroom, probability, time to exhaustion, preemptions, driver. Needs rich."""

from collections import deque
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from exporter.demo import words
from exporter.forecast.assessment import State
from exporter.snapshot import EngineStatus, Snapshot

BAR_WIDTH = 40
LEVELS = " ▁▂▃▄▅▆▇█"
COLOURS: dict[State, str] = {
    "ok": "green",
    "watch": "yellow",
    "predicted": "bold red",
    "exhausted": "bold white on red",
    "stalled": "bold magenta",
    "asleep": "blue",
    "unknown": "dim",
}


class View:
    """Draws snapshots one after the other and remembers the usage of each engine for the line of its past."""

    def __init__(self, title: str, notes: Sequence[str]) -> None:
        self._title = title
        self._notes = notes
        self._past: dict[str, deque[float]] = {}
        self._drawn = -1

    def draw(self, snapshot: Snapshot | None) -> RenderableType:
        """The whole view at one tick."""
        if snapshot is None:
            return Panel(Text("waiting for the first reading …"), title=self._title)
        if snapshot.ticks != self._drawn:
            self._drawn = snapshot.ticks
            for status in snapshot.engines:
                if status.reading.kv_usage is not None:
                    past = self._past.setdefault(status.reading.engine, deque(maxlen=BAR_WIDTH))
                    past.append(status.reading.kv_usage)
        engines = [self._engine(status, several=len(snapshot.engines) > 1) for status in snapshot.engines]
        troubles = [Text(f"{one.source}: {one.message}", style="red") for one in snapshot.sources if not one.up]
        notes = Text("\n".join(self._notes), style="dim")
        return Panel(
            Group(*engines, *troubles, notes), title=f"{self._title}, second {snapshot.time:.0f}", title_align="left"
        )

    def _engine(self, status: EngineStatus, *, several: bool) -> RenderableType:
        assessment, reading = status.assessment, status.reading
        verdict = Text(f"{assessment.state}  ", style=COLOURS[assessment.state])
        verdict.append(words.sentence(assessment), style="default")
        figures = Table.grid(padding=(0, 2))
        figures.add_column(style="dim", justify="right")
        figures.add_column()
        if several:
            figures.add_row("engine", reading.engine)
        figures.add_row("pool", self._bar(status))
        figures.add_row("last readings", self._line(reading.engine))
        for name, value in _figures(status):
            figures.add_row(name, value)
        return Group(verdict, Text(), figures, Text())

    def _bar(self, status: EngineStatus) -> Text:
        usage = status.reading.kv_usage
        filled = round(BAR_WIDTH * (usage or 0.0))
        bar = Text("█" * filled, style=COLOURS[status.assessment.state])
        bar.append("░" * (BAR_WIDTH - filled), style="dim")
        peak = words.percent(status.assessment.used_ratio_peak)
        bar.append(f" {words.percent(usage)}, peak {peak}", style="default")
        return bar

    def _line(self, engine: str) -> Text:
        past = self._past.get(engine, ())
        return Text("".join(LEVELS[min(len(LEVELS) - 1, round(usage * (len(LEVELS) - 1)))] for usage in past))


def _figures(status: EngineStatus) -> Sequence[tuple[str, str]]:
    assessment, reading, headroom = status.assessment, status.reading, status.headroom
    chances = ", ".join(
        f"{words.percent(value)} in {horizon:.0f} s" for horizon, value in sorted(assessment.probability.items())
    )
    rate, per_request = assessment.preemptions_per_second, assessment.preemptions_per_finished_request
    levers = sorted(assessment.levers.items(), key=lambda item: -abs(item[1] - 1))[:3]
    return (
        (
            "headroom",
            f"{words.count(headroom.tokens)} of {words.count(status.capacity.tokens)} tokens, "
            f"{words.count(headroom.requests)} requests of the present kind, {words.gibibytes(headroom.bytes)}",
        ),
        ("load", f"{words.count(reading.running)} running, {words.count(reading.waiting)} waiting"),
        ("runs out", words.seconds(assessment.time_to_exhaustion_seconds)),
        ("probability", chances or "not known yet"),
        ("driver", words.driver(assessment)),
        (
            "preemptions",
            f"{words.count(reading.preemptions)} so far"
            + ("" if rate is None else f", {rate:.2f} a second")
            + ("" if per_request is None else f", {per_request:.2f} per finished request"),
        ),
        ("levers", ", ".join(f"{name} × {gain:.2f}" for name, gain in levers) or words.UNKNOWN),
    )
