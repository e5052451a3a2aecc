from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.web.conftest import SCREENSHOTS, Site
from tests.web.scenes import MOODS, SCENES, Scene, engine, scene

Serve = Callable[[Scene], Site]
Scheme = Literal["light", "dark"]

SIZES = {"wide": (1280, 800), "phone": (360, 740), "wall": (1920, 1080)}


@contextmanager
def shown(browser: Browser, size: str = "wide", scheme: Scheme = "light", javascript: bool = True) -> Iterator[Page]:
    """A fresh page that must not complain: a console message or an uncaught error fails the test."""
    width, height = SIZES[size]
    complaints: list[str] = []
    with browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        java_script_enabled=javascript,
        reduced_motion="reduce",
    ) as context:
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        yield page
    assert complaints == []


def changed(site: Site, mood: str) -> None:
    """The next tick finds the engine in another mood."""
    made = scene(engine(MOODS[mood]), seconds=3)  # type: ignore[index]
    site.scene = replace(site.scene, snapshot=made.snapshot)


EVERY = [(name, size, scheme) for name in SCENES for size, scheme in (("wide", "light"), ("phone", "dark"))]
MORE = [
    (name, size, scheme)
    for name in ("predicted", "eight-engines")
    for size, scheme in (("wide", "dark"), ("phone", "light"), ("wall", "dark"))
]


def look(page: Page, site: Site, name: str, size: str, scheme: Scheme) -> None:
    """Load the page, keep what it looks like, and see that it fits the screen."""
    page.goto(site.url)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"status-{name}-{size}-{scheme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]


@pytest.mark.parametrize(("name", "size", "scheme"), EVERY)
def test_every_state_is_shown_to_everyone(browser: Browser, serve: Serve, name: str, size: str, scheme: Scheme) -> None:
    """Each state loads without complaint, fits the screen, and axe-core has no serious objection."""
    site = serve(SCENES[name]())
    with shown(browser, size, scheme) as page:
        look(page, site, name, size, scheme)
        page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
        serious = [
            (one["id"], [node["html"] for node in one["nodes"]])
            for one in Axe().run(page).response["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == []


@pytest.mark.parametrize(("name", "size", "scheme"), MORE)
def test_every_screen_is_filled(browser: Browser, serve: Serve, name: str, size: str, scheme: Scheme) -> None:
    """From a phone to a wall, light and dark, the page fits the screen."""
    site = serve(SCENES[name]())
    with shown(browser, size, scheme) as page:
        look(page, site, name, size, scheme)


def test_the_page_follows_without_being_loaded_again(browser: Browser, serve: Serve) -> None:
    """When the state changes, sentence, figures, title and icon follow, and a screen reader hears the new state."""
    site = serve(SCENES["ok"]())
    with shown(browser) as page:
        page.goto(site.url)
        page.evaluate("window.same = true")
        before = page.locator("link[rel=icon]").get_attribute("href")
        changed(site, "predicted")
        expect(page.locator("h1")).to_contain_text("predicted to run out in about 40")
        expect(page.locator(".figures b").first).to_have_text("22,288")
        expect(page.locator("#spoken")).to_have_text("predicted")
        expect(page).to_have_title("predicted · vllm-headroom")
        assert page.locator("link[rel=icon]").get_attribute("href") != before
        assert page.evaluate("window.same")


def test_the_page_works_without_javascript(browser: Browser, serve: Serve) -> None:
    """With scripts switched off the page says the same and loads itself again."""
    site = serve(SCENES["ok"]())
    with shown(browser, javascript=False) as page:
        page.goto(site.url)
        expect(page.locator("h1")).to_contain_text("All right")
        changed(site, "exhausted")
        expect(page.locator("h1")).to_contain_text("has run out", timeout=15_000)


def test_what_a_person_opened_stays_open(browser: Browser, serve: Serve) -> None:
    """An engine opened by hand stays open and focused over updates; one that gets into trouble opens by itself."""
    site = serve(SCENES["eight-engines"]())
    with shown(browser) as page:
        page.goto(site.url)
        page.locator("#engine-0-summary").click()
        moods = ("ok", "predicted", "watch", "ok", "predicted", "asleep", "ok", "exhausted")
        engines = tuple(engine(MOODS[mood], str(number)) for number, mood in enumerate(moods))  # type: ignore[index]
        worse = replace(engines[0], headroom=replace(engines[0].headroom, tokens=1234.0))
        later = replace(site.scene.snapshot, engines=(worse, *engines[1:]))
        expect(page.locator("#engine-1-details")).not_to_have_attribute("open", "")
        site.scene = replace(site.scene, snapshot=later)
        expect(page.locator("#left")).to_contain_text("1,234 tokens")
        expect(page.locator("#engine-0-details")).to_have_attribute("open", "")
        expect(page.locator("#engine-1-details")).to_have_attribute("open", "")
        assert page.evaluate("document.activeElement.id") == "engine-0-summary"


def test_a_link_to_an_engine_opens_it(browser: Browser, serve: Serve) -> None:
    """From the overview, the keyboard alone leads to an engine's own part."""
    site = serve(SCENES["eight-engines"]())
    with shown(browser) as page:
        page.goto(site.url)
        expect(page.locator("#engine-3 .pool-chart")).not_to_be_visible()
        page.locator("#to-engine-3").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#engine-3 .pool-chart")).to_be_visible()


def test_an_exporter_that_does_not_answer_is_said_to(browser: Browser, serve: Serve) -> None:
    """When the exporter goes away the page says that it is old, and recovers with it."""
    made = SCENES["ok"]()
    site = serve(made)
    port = site.server.port
    width, height = SIZES["wide"]
    with browser.new_context(viewport={"width": width, "height": height}) as context:
        page = context.new_page()
        page.goto(site.url)
        site.server.close()
        expect(page.locator("#lost")).to_contain_text("No answer since", timeout=15_000)
        page.screenshot(path=SCREENSHOTS / "status-lost-wide-light.png")
        with Site(made, port).server:
            expect(page.locator("#lost")).to_be_hidden(timeout=15_000)


def test_engines_that_come_and_go_are_followed(browser: Browser, serve: Serve) -> None:
    """When an engine appears the page gains its part without being loaded again."""
    site = serve(SCENES["ok"]())
    with shown(browser) as page:
        page.goto(site.url)
        site.scene = replace(site.scene, snapshot=SCENES["two-engines"]().snapshot)
        expect(page.locator(".rows li")).to_have_count(2)
        changed(site, "asleep")
        expect(page.locator(".figures")).to_be_visible()
        expect(page.locator("h1")).to_contain_text("sleeps")


def test_the_chosen_window_stays(browser: Browser, serve: Serve) -> None:
    """Choosing a window shows that window, and updates keep it."""
    site = serve(SCENES["ok"]())
    with shown(browser) as page:
        page.goto(site.url)
        page.get_by_role("link", name="1 min", exact=True).click()
        expect(page.locator(".axis span").first).to_have_text("−60 s")
        changed(site, "predicted")
        expect(page.locator("h1")).to_contain_text("predicted")
        expect(page.locator(".axis span").first).to_have_text("−60 s")
