"""The status page: one HTML document without outside parts, which works without JavaScript."""

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files

from exporter.forecast.assessment import State
from exporter.web.engines import anchor, engine_part, left_of_many, left_of_one, state_chip
from exporter.web.markup import Markup, join, tag, void
from exporter.web.status import Engine, Status
from exporter.web.surroundings import gpus, host_memory, source_list
from exporter.web.telling import WINDOWS
from exporter.web.verdicts import engine_name
from exporter.web.words import SEVERITY, unbroken

OPEN_ALL = 2
"""Up to so many engines are shown in full; of more, only those that need attention."""
REFRESH_SECONDS = 5
"""How often the page loads itself again where scripts are switched off."""

ICON_COLOURS: dict[State, str] = {
    "ok": "#1a7f37",
    "watch": "#b7791f",
    "predicted": "#d9480f",
    "exhausted": "#c92a2a",
    "stalled": "#7048a8",
    "asleep": "#5b7a94",
    "unknown": "#868e96",
}


class Page:
    """Makes the page; its style and script are read once, and their hashes are all that may run."""

    def __init__(self) -> None:
        here = files("exporter.web")
        self._style = Markup((here / "style.css").read_text(encoding="utf-8"))
        self._script = Markup((here / "live.js").read_text(encoding="utf-8"))
        self.policy = "; ".join(
            [
                "default-src 'none'",
                f"style-src '{_hash(self._style)}'",
                f"script-src '{_hash(self._script)}'",
                "connect-src 'self'",
                "img-src data:",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            ]
        )
        """The value of Content-Security-Policy."""

    def of(self, status: Status, window: int, every: int = 2) -> str:
        """The page that shows `status`, whose history covers `window` seconds, and asks anew `every` seconds."""
        return self._document(status.verdict.state, _links(window), _sections(status), every)

    def before_the_first(self) -> str:
        """The page that is shown until the first tick has ended."""
        starting = tag("section", state_chip("unknown"), tag("h1", "Starting: nothing has been read yet."))
        return self._document("unknown", (), (starting,), every=2)

    def _document(self, state: State, links: Sequence[Markup], sections: Sequence[Markup], every: int) -> str:
        head = tag(
            "head",
            void("meta", charset="utf-8"),
            void("meta", name="viewport", content="width=device-width, initial-scale=1"),
            void("meta", name="color-scheme", content="light dark"),
            tag("title", f"{state} · vllm-headroom"),
            void("link", rel="icon", href=_icon(state)),
            tag("noscript", void("meta", http_equiv="refresh", content=str(REFRESH_SECONDS))),
            tag("style", self._style),
        )
        body = tag(
            "body",
            tag("header", tag("a", "vllm-headroom", href="./", class_="brand"), *links),
            tag("p", id="lost", role="alert", hidden=True),
            tag("p", state, id="spoken", role="status", class_="spoken"),
            tag("main", *sections),
            tag("script", self._script),
            data_period=every,
        )
        return "<!doctype html>\n" + tag("html", head, body, lang="en")


def _links(window: int) -> list[Markup]:
    choices = [_window_link(seconds, chosen=seconds == window) for seconds in WINDOWS]
    forms = tag("a", "metrics", href="metrics"), tag("a", "JSON", href="api/v1/status")
    return [
        tag("nav", tag("span", "past"), *choices, aria_label="window of the past"),
        tag("nav", *forms, aria_label="other forms"),
    ]


def _window_link(seconds: int, *, chosen: bool) -> Markup:
    return tag("a", f"{seconds // 60} min", href=f"./?window={seconds}", aria_current="true" if chosen else None)


def _sections(status: Status) -> list[Markup]:
    engines = status.engines
    sections = [_verdict(status)]
    if engines:
        left = left_of_one(engines[0]) if len(engines) == 1 else left_of_many(engines)
        sections.append(_section("left", "How much is left", left))
    sections.append(_section("gpus", "GPU memory", gpus(status.devices, status.sources)))
    sections += [_engine(engine, number, engines) for number, engine in enumerate(engines)]
    if status.host is not None:
        memory = tag("div", host_memory(status.host), class_="broad")
        sections.append(_section("host", f"Host memory of the {status.host.scope}", memory))
    sections.append(_section("sources", "Sources", source_list(status.sources)))
    return sections


def _verdict(status: Status) -> Markup:
    verdict = status.verdict
    at = datetime.fromtimestamp(status.time, UTC)
    when = tag("time", f"{at:%H:%M:%S} UTC", datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}")
    return tag(
        "section",
        tag("div", tag("strong", verdict.state, class_=f"chip {verdict.state}")),
        tag("h1", unbroken(verdict.sentence)),
        tag("p", unbroken(f"{verdict.detail[:1].upper()}{verdict.detail[1:]}.")) if verdict.detail else None,
        tag("p", "read at ", when, f" by vllm-headroom {status.exporter}", class_="quiet"),
        id="verdict",
        class_=f"verdict {verdict.state}",
        data_live=True,
    )


def _section(name: str, title: str, content: Markup) -> Markup:
    return tag("section", tag("h2", title), content, id=name, data_live=True)


def _engine(engine: Engine, number: int, engines: Sequence[Engine]) -> Markup:
    name = anchor(number)
    if len(engines) == 1:
        # A name may hold characters that turn the direction of writing; it must turn no text but its own.
        named = tag("p", tag("bdi", engine.model_name), " · engine ", tag("bdi", engine.engine), class_="quiet")
        heading = tag("div", tag("h2", "KV pool"), named, class_="head")
        return tag("section", heading, engine_part(engine, number), id=name, data_live=True)
    said = tag("p", unbroken(engine.sentence), " ", tag("small", tag("bdi", engine.model_name)))
    heading = join(tag("h2", engine_name(engine, engines)), state_chip(engine.state))
    if len(engines) <= OPEN_ALL:
        content = join(tag("div", heading, class_="head"), said, engine_part(engine, number))
        return tag("section", content, id=name, data_live=True)
    urgent = SEVERITY.index(engine.state) > SEVERITY.index("unknown")
    summary = tag("summary", heading, id=f"{name}-summary")
    details = tag("details", summary, said, engine_part(engine, number), open=urgent, id=f"{name}-details")
    return tag("section", details, id=name, data_live=True)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _icon(state: State) -> str:
    dot = f"<circle cx='1' cy='1' r='.9' fill='{ICON_COLOURS[state]}'/>"
    drawing = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 2 2'>{dot}</svg>"
    return "data:image/svg+xml," + drawing.replace("#", "%23").replace("<", "%3C").replace(">", "%3E")
