"""The daemon in this process, and its page as values."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, sleep

import httpx
from prometheus_client.parser import text_string_to_metric_families

from exporter.assembly import build_monitor
from exporter.run import Daemon
from exporter.settings import load

Series = tuple[str, frozenset[tuple[str, str]]]


class Page:
    """The samples of one exporter page."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples: dict[Series, float] = {
            (sample.name.removeprefix("vllm_headroom_"), frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    @property
    def series(self) -> Iterable[Series]:
        """Every sample's name and labels."""
        return self._samples.keys()

    def value(self, name: str, **labels: str) -> float | None:
        """The one sample of `name` that has these labels among its own; `None` if there is none."""
        found = self.values(name, **labels)
        assert len(found) <= 1, found
        return next(iter(found.values()), None)

    def values(self, name: str, **labels: str) -> Mapping[Series, float]:
        """Every sample of `name` that has these labels among its own."""
        wanted = labels.items()
        return {key: value for key, value in self._samples.items() if key[0] == name and wanted <= key[1]}

    def state(self, engine: str = "0") -> str | None:
        """The state that is 1."""
        states = self.values("state", engine=engine)
        return next((dict(labels)["state"] for (_, labels), value in states.items() if value == 1), None)


class Running:
    """A daemon that ticks."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    def tick(self, ticks: int = 0, seconds: float = 20.0) -> None:
        """Wait until `ticks` further ticks have ended, and at least one ever."""
        latest = self.daemon.monitor.latest
        wanted = (latest.ticks if latest else 0) + ticks
        until = monotonic() + seconds
        while (latest := self.daemon.monitor.latest) is None or latest.ticks < wanted:
            assert monotonic() < until, "the daemon does not tick"
            sleep(0.01)

    def page(self, ticks: int = 0, seconds: float = 20.0) -> Page:
        """The page once `ticks` further ticks have ended."""
        self.tick(ticks, seconds)
        return Page(httpx.get(f"{self.daemon.url}/metrics").text)


@contextmanager
def running(*urls: str, **flags: str) -> Iterator[Running]:
    """A daemon that watches `urls` ten times a second, without GPU and host, on a free port."""
    usual = {
        "vllm_url": " ".join(urls),
        "listen": "127.0.0.1:0",
        "poll_interval_seconds": "0.1",
        "vllm_timeout_seconds": "0.5",
        "gpus": "none",
        "host": "none",
    }
    settings = load(usual | flags)
    with Daemon(build_monitor(settings), settings) as daemon:
        yield Running(daemon)
