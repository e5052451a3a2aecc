"""The live view in a terminal. Needs rich."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from exporter.forecast.assessment import State
from exporter.top.board import Board
from exporter.top.feeds import Seen
from exporter.top.report import Place, facts, gpu, host, left, name, places, soon, states, troubles
from exporter.top.sketch import Row, bar, pool_rows, stack
from exporter.web.words import about, percent, size

COLOURS: dict[State, str] = {
    "ok": "bold green",
    "watch": "bold yellow",
    "predicted": "bold bright_red",
    "exhausted": "bold white on red",
    "stalled": "bold magenta",
    "asleep": "bold cyan",
    "unknown": "bold",
}
STYLES = {
    "used": "blue",
    "ahead": "magenta",
    "bad": "magenta dim",
    "full": "red",
    "mark": "bold red",
    "quiet": "dim",
    "weights": "grey50",
    "kv_used": "blue",
    "kv_free": "bright_blue",
    "kv_pool": "blue",
    "other": "yellow",
    "server": "yellow",
    "neighbours": "magenta",
    "unattributed": "yellow dim",
    "reserved": "grey50",
    "free": "dim",
    "": "",
}
LOW = 36
"""Below this height the view leaves out what is not urgent, so that the drawing keeps its place."""
NARROW = 110
KEYS = "j/k engine  w window  q quit"


class View:
    """Draws the board onto a console of any size; `notes` stand under the title."""

    def __init__(self, console: Console, title: str = "vllm-headroom top", notes: Sequence[str] = ()) -> None:
        self._console = console
        self._title = title
        self._notes = notes

    def draw(self, seen: Sequence[Seen], board: Board) -> RenderableType:
        """The whole view; the drawing of the pool takes what height is left."""
        everyone = places(seen)
        above: list[RenderableType] = [self._head(board), *(Text(note, style="dim") for note in self._notes)]
        above += [_verdict(one, several=len(seen) > 1) for one in seen if one.status is not None]
        below: list[RenderableType] = [Text(trouble, style="red") for trouble in troubles(seen)]
        if not everyone:
            return Group(*above, *below)
        chosen = everyone[board.place(states(everyone))]
        if len(everyone) > 1:
            above.append(self._engines(everyone, board))
        above += [Text(), _titled(chosen, everyone), _facts(chosen, brief=self._low)]
        below = [*self._memory(chosen), *below]
        taken = sum(len(self._console.render_lines(part)) for part in (*above, *below))
        height = max(4, min(14, self._console.height - taken - 3))
        chart = [_text(row) for row in pool_rows(chosen.engine, self._console.width - 1, height)]
        return Group(*above, *chart, *below)

    @property
    def _low(self) -> bool:
        return self._console.height < LOW

    def _head(self, board: Board) -> Table:
        head = Table.grid(expand=True)
        head.add_column(no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        head.add_row(Text(f"{self._title} · past {about(board.window)}", style="bold"), Text(KEYS, style="dim"))
        return head

    def _engines(self, everyone: Sequence[Place], board: Board) -> Table:
        """The engines, or as many around the chosen one as a quarter of the screen can hold."""
        chosen = board.place(states(everyone))
        room = max(3, self._console.height // 4)
        first = max(0, min(chosen - room // 2, len(everyone) - room))
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        for ratio in (None, None, None, 3, 4):
            table.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
        for number, place in enumerate(everyone[first : first + room], first):
            engine, used = place.engine, place.engine.pool.used_ratio
            use = Text.assemble(_text(bar(used, 10, "used")), f" {percent(used):>6}")
            pointer = "▶ " if number == chosen else "  "
            room_for = left(engine) if self._console.width >= NARROW else left(engine).partition(" · ")[0]
            table.add_row(pointer + name(place, everyone), _state(engine.state), use, room_for, soon(engine))
        if len(everyone) > room:
            table.add_row(Text(f"  {len(everyone)} engines", style="dim"))
        return table

    def _memory(self, chosen: Place) -> list[RenderableType]:
        parts: list[RenderableType] = []
        devices = chosen.status.devices
        if self._low and len(devices) > 2:
            urgent = [device for device in devices if device.state in ("watch", "predicted")]
            parts.append(Text(f"{len(devices)} GPUs, {len(urgent) or 'none'} of them filling up", style="dim"))
            devices = tuple(urgent[:2])
        for device in devices:
            known = f" {size(device.headroom_bytes)} free" if device.headroom_bytes is not None else ""
            state = _state(device.state) if device.state in ("watch", "predicted") else Text()
            label = f"GPU {device.gpu:<3} "
            width = max(10, self._console.width - len(label) - len(known) - 12)
            if device.segments:
                parts.append(Text.assemble(label, _text(stack(device.segments, width)), known, " ", state))
            if (len(devices) == 1 and not self._low) or not device.segments:
                parts.append(Text(gpu(device), style="dim"))
        if chosen.status.host is not None and (not self._low or chosen.status.host.state != "ok"):
            parts.append(Text(f"host memory of the {host(chosen.status.host)}", style="dim"))
        return parts


def _verdict(one: Seen, *, several: bool) -> Text:
    verdict = one.status.verdict if one.status is not None else None
    if verdict is None:
        return Text()
    where = f"{one.server}: " if several else ""
    return Text.assemble(where, _state(verdict.state), " ", (verdict.sentence, "bold"))


def _state(state: State) -> Text:
    return Text(f" {state} ", style=COLOURS[state])


def _titled(place: Place, everyone: Sequence[Place]) -> Text:
    return Text.assemble((name(place, everyone).capitalize(), "bold"), (f"  {place.engine.model_name}", "dim"))


def _facts(place: Place, *, brief: bool) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(style="dim", justify="right", no_wrap=True)
    table.add_column()
    for title, text in facts(place.engine, brief=brief):
        table.add_row(title, Text(text))
    return table


def _text(row: Row) -> Text:
    return Text.assemble(*((text, STYLES.get(style, "")) for text, style in row), no_wrap=True)
