"""What goes wrong with a server, the word it gets, and that no key is told over it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from exporter.sources.http_faults import REASONS, fault
from tests.support.expositions import TWO_ENGINES, exposition
from tests.support.pages import (
    Behaviour,
    PageServer,
    answer,
    chunked,
    disconnect,
    endless,
    garbage,
    gzip_bomb,
    gzipped,
    html,
    not_http,
    redirect,
    status,
    truncated,
    until_close,
)
from tests.support.sources import LIMIT, fault_of, source_of

PAGE = exposition(TWO_ENGINES)
KEY = "sk-a-secret-nobody-may-see"
WITHOUT_VLLM = "# TYPE python_info gauge\npython_info 1\n"


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer(answer(PAGE)) as server:
        yield server


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (status(401), "http_401"),
        (status(403), "http_403"),
        (status(404), "http_404"),
        (status(429), "http_4xx"),
        (status(500), "http_5xx"),
        (status(503), "http_5xx"),
        (status(204, ""), "http_other"),
        (redirect("http://127.0.0.1:1/metrics"), "redirect"),
        (redirect("/metrics/", 308), "redirect"),
        (html(), "not_metrics"),
        (answer("<html>\n<body>5</body>\n</html>\n"), "not_metrics"),
        (answer('{"detail":"x"}', content_type="application/json"), "not_metrics"),
        (answer("# HELP x\nx 1\n", content_type="text/html"), "not_metrics"),
        (garbage(), "not_metrics"),
        (answer(""), "empty"),
        (answer("\n\n"), "not_metrics"),
        (answer(WITHOUT_VLLM), "empty"),
        (truncated(PAGE, len(PAGE) - 10), "truncated"),
        (truncated(PAGE, 0), "truncated"),
        (chunked(PAGE, end=False), "truncated"),
        (until_close(PAGE[:-10]), "truncated"),
        (gzipped(PAGE, sent_bytes=3000), "truncated"),
        (answer(PAGE, headers={"Content-Encoding": "gzip"}), "garbled"),
        (answer(PAGE, headers={"Content-Encoding": "br"}), "garbled"),
        (endless(LIMIT + 1, line="some_series_or_other 1\n"), "too_large"),
        (gzip_bomb(50 * LIMIT), "too_large"),
        (not_http(), "not_http"),
        (disconnect(), "disconnected"),
        (disconnect(reset=True), "disconnected"),
    ],
)
def test_every_misbehaviour_has_its_word(server: PageServer, behaviour: Behaviour, reason: str) -> None:
    """A fault is a `SourceError` with a bounded reason, nothing of its page is kept, and the next reading is good."""
    source = source_of(server.url)
    server.behaviour = behaviour
    for _ in range(2):
        error = fault_of(source)
        assert error.reason == reason
        assert f"{server.url}/metrics" in str(error)
    server.behaviour = answer(PAGE)
    assert len(source.read().engines) == 2
    source.close()


def test_a_redirect_is_named_and_never_followed() -> None:
    """The target is told without its query, and is not asked."""
    with PageServer(answer(PAGE)) as other, PageServer(redirect(f"{other.url}/metrics?token=abc")) as server:
        source = source_of(server.url)
        error = fault_of(source)
        assert f"redirects to '{other.url}/metrics'" in str(error)
        assert "token" not in str(error)
        assert other.connections == 0
        source.close()


def test_nobody_listens() -> None:
    """A port without a server is refused, and the message says what to look at."""
    with PageServer(answer(PAGE)) as gone:
        url = gone.url
    error = fault_of(source_of(url))
    assert error.reason == "refused"
    assert str(error) == f"{url}/metrics refused the connection; is the server running and listening there?"


@pytest.mark.parametrize(
    "behaviour",
    [status(401), status(500, KEY), redirect("/login"), html(), not_http(), disconnect(), garbage()],
)
def test_a_key_is_never_told(server: PageServer, tmp_path: Path, behaviour: Behaviour) -> None:
    """Whatever goes wrong, neither the message nor what caused it holds the key that was sent."""
    file = tmp_path / "key"
    file.write_text(KEY)
    server.behaviour = behaviour
    source = source_of(server.url, api_key_file=file)
    error: BaseException | None = fault_of(source)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    while error is not None:
        assert KEY not in repr(error)
        error = error.__cause__ or error.__context__
    source.close()


@pytest.mark.parametrize(
    "content", [None, b"", b"  \n", b"two words", b"line\nline", b"\xff\xfe", b"a\x00b", "ключ".encode()]
)
def test_a_key_file_that_holds_no_key(server: PageServer, tmp_path: Path, content: bytes | None) -> None:
    """A key file that is missing or unfit is told by its path, without its content, and nothing is sent."""
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    source = source_of(server.url, api_key_file=file)
    error = fault_of(source)
    assert error.reason == "key_unreadable"
    assert str(file) in str(error)
    assert "two words" not in str(error)
    assert server.requests == []
    source.close()


def exceptions_of_httpx() -> list[type[Exception]]:
    public = (getattr(httpx, name) for name in httpx.__all__)
    return [thing for thing in public if isinstance(thing, type) and issubclass(thing, Exception)]


@pytest.mark.parametrize("kind", exceptions_of_httpx(), ids=lambda kind: kind.__name__)
def test_every_exception_of_httpx_is_mapped(kind: type[Exception]) -> None:
    """Each has a word of its own accord, and a sentence that does not repeat what httpx says."""
    assert kind in REASONS
    extra = {"request": None, "response": None} if issubclass(kind, httpx.HTTPStatusError) else {}
    try:
        raised = kind(KEY, **extra)
    except TypeError:
        raised = kind()
    error = fault("vllm", "http://h/metrics", raised)
    assert error.reason == REASONS[kind]
    assert str(error).startswith("http://h/metrics ")
    assert KEY not in str(error)


def test_an_exception_that_httpx_may_add_is_mapped_by_its_kind() -> None:
    """A subclass nobody knows yet gets the word of what it derives from."""

    class Surprise(httpx.ReadTimeout):
        pass

    assert fault("vllm", "http://h/metrics", Surprise("x")).reason == "timeout"
