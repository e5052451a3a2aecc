"""Sixteen vLLM servers under one daemon go wrong, each in its way, and are good again."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from tests.faults.servers import LIMIT_BYTES, Names, serve, stop, troubles, url
from tests.support.daemon import Page, running

LEFT = {"state", "forecasts_total"}
"""What the page still says of an engine of which nothing is known."""
AUTHORITY = trustme.CA()
NAMES = tuple(troubles(Names(), AUTHORITY))


@dataclass(frozen=True)
class Story:
    """Our page before, during and after, and which server is which."""

    servers: dict[str, str]
    reasons: dict[str, str]
    before: Page
    during: Page
    after: Page


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    bundle: Path = tmp_path_factory.mktemp("tls") / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(bundle)
    names = Names()
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(socket, "getaddrinfo", names)
        all_of_them = troubles(names, AUTHORITY)
        servers = {name: serve(trouble) for name, trouble in all_of_them.items()}
        for server in servers.values():
            stack.callback(stop, server)
        urls = {name: url(trouble, servers[name]) for name, trouble in all_of_them.items()}
        flags = {
            "tls_ca_file": str(bundle),
            "body_limit_bytes": str(LIMIT_BYTES),
            "vllm_timeout_seconds": "1.5",
            "max_model_len": "4096",
        }
        exporter = stack.enter_context(running(*urls.values(), **flags))
        before = exporter.page(ticks=2)
        for name, trouble in all_of_them.items():
            trouble.inflict(servers[name])
        during = exporter.page(ticks=2)
        for name, trouble in all_of_them.items():
            trouble.mend(servers[name])
        # The tick that is under way may have met the fault; the two after it must not.
        after = exporter.page(ticks=3)
        yield Story(
            servers={name: urlsplit(each).netloc for name, each in urls.items()},
            reasons={name: trouble.reason for name, trouble in all_of_them.items()},
            before=before,
            during=during,
            after=after,
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_is_named_and_takes_its_own_series_with_it(story: Story, name: str) -> None:
    """While it lasts the source is down for its reason, the engine is unknown and nothing is said of it as present."""
    server = story.servers[name]
    assert story.before.value("source_up", source="vllm", server=server) == 1
    assert story.before.values("kv_used_ratio", server=server)
    assert story.during.value("source_up", source="vllm", server=server) == 0
    told = story.during.values("source_down_reason", source="vllm", server=server)
    assert [dict(labels)["reason"] for _, labels in told] == [story.reasons[name]]
    about = {
        family for family, labels in story.during.series if ("server", server) in labels and "engine" in dict(labels)
    }
    assert about <= LEFT, about
    states = story.during.values("state", server=server)
    assert [dict(labels)["state"] for (_, labels), value in states.items() if value == 1] == ["unknown"]


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_that_is_over_is_over_within_two_ticks(story: Story, name: str) -> None:
    """What was there before is there again, alone, and no counter is lower than it was."""
    server = story.servers[name]
    assert story.after.value("source_up", source="vllm", server=server) == 1
    assert not story.after.values("source_down_reason", source="vllm", server=server)
    assert story.after.values("kv_used_ratio", server=server) == story.before.values("kv_used_ratio", server=server)
    earlier = story.before.values("forecasts_total", server=server)
    assert earlier
    for page in (story.during, story.after):
        later = page.values("forecasts_total", server=server)
        assert all(later[series] >= count for series, count in earlier.items())


def test_ticks_go_on_all_the_while(story: Story) -> None:
    """Every tick is counted, and no other source is down for it."""
    counts = [page.value("ticks_total") or 0.0 for page in (story.before, story.during, story.after)]
    assert counts == sorted(counts)
    assert counts[2] - counts[0] >= 5
