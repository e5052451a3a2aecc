"""A crowd that scrapes at once."""

import asyncio
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import running
from tests.support.pages import PageServer, answer

PAGE = (Path(__file__).parent / "data" / "expositions" / "vllm-0.32-one-engine-full.prom").read_text()
CLIENTS = 1_000


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Enough of them for both ends of every connection."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, min(most, 4 * CLIENTS)), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


async def crowd(port: int) -> list[bytes]:
    """What each of the clients is sent: all connect first, then all ask, then all read."""
    streams = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(CLIENTS)))
    for _, writer in streams:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answers = await asyncio.gather(*(reader.read(-1) for reader, _ in streams))
    for _, writer in streams:
        writer.close()
    return answers


@pytest.mark.usefixtures("descriptors")
def test_a_thousand_scrapes_at_once_all_get_the_page_and_ticks_go_on() -> None:
    """Everybody gets a whole page, and ticks are counted on while and after they are served."""
    with PageServer(answer(PAGE)) as server, running(server.url) as exporter:
        before = exporter.page(ticks=2).value("ticks_total")
        answers = asyncio.run(crowd(exporter.daemon.server.port))
        after = exporter.page(ticks=2).value("ticks_total")
    assert before is not None
    assert after is not None
    assert after >= before + 2
    for each in answers:
        head, _, body = each.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert f"content-length: {len(body)}".encode() in head.lower()
        assert b"vllm_headroom_kv_used_ratio{" in body
