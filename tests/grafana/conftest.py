"""Two minutes with the real tools, spent once: the paging story, and beside it a demo that the dashboards ask about."""

import time
from collections.abc import Iterator

import pytest

from exporter.demo.demo import Demo
from exporter.demo.traffic import SCENARIOS
from tests.grafana.stack import prometheus
from tests.grafana.story import RULES, Story, tell

SCRAPED_SECONDS = 120.0


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Story, str]]:
    """The story, told to its end, and the URL of a Prometheus that has scraped the demo's overload meanwhile."""
    home = tmp_path_factory.mktemp("live")
    with Demo(SCENARIOS["overload"], listen="127.0.0.1:0") as demo:
        target = (demo.url.removeprefix("http://"), {"namespace": "llm", "pod": "chat-0"})
        with prometheus(home / "demo", {"llm/vllm-headroom": [target]}, RULES, scrape_seconds=2) as url:
            until = time.monotonic() + SCRAPED_SECONDS
            story = tell(home)
            time.sleep(max(0.0, until - time.monotonic()))
            yield story, url


@pytest.fixture(scope="session")
def story(live: tuple[Story, str]) -> Story:
    """What happened between the engine and the two PagerDuties."""
    return live[0]


@pytest.fixture(scope="session")
def demo_prometheus(live: tuple[Story, str]) -> str:
    """URL of a Prometheus with two minutes of the demo."""
    return live[1]
