"""What docs/security.md promises: the key is told to nobody, no name breaks anything, nobody is led elsewhere."""

import ast
import io
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as exposition_format

from exporter import logs
from exporter.cli import main
from exporter.errors import SourceError
from exporter.settings import Settings
from exporter.sources.endpoint import Endpoint
from exporter.sources.hub import HubDownload
from exporter.sources.model_config import cached_config, find_model_config
from exporter.sources.names import plain_text
from exporter.sources.prometheus import History
from exporter.sources.vllm import Access, VllmSource
from exporter.top.feeds import ExporterFeed
from tests.support import pages
from tests.support.daemon import Running, running
from tests.support.expositions import TWO_ENGINES, exposition
from tests.support.hostile import NAMES, page
from tests.support.loopback import Connection, Request
from tests.support.tools import tool

PACKAGE = Path(__file__).parent.parent / "exporter"
KEY = "sk-0123456789-secret-abcdef"
PATHS = ("/", "/metrics", "/api/v1/status", "/healthz", "/readyz", "/nothing", f"/{KEY[:5]}")


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that this project logs, as the daemon at its most talkative writes it."""
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:]
    logs.start("debug", "text", stream)
    yield stream
    root.handlers[:] = before
    logging.getLogger("exporter").setLevel(logging.NOTSET)


def shown(daemon: Running) -> dict[str, str]:
    """Every page, in every form."""
    forms = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with httpx.Client(base_url=daemon.daemon.url, trust_env=False) as client:
        told = {path: client.get(path).text for path in PATHS}
        return told | {"openmetrics": client.get("/metrics", headers=forms).text}


# The key.


def _echo(connection: Connection, request: Request) -> bool:
    """Sends the key back in the address that it redirects to."""
    key = request.headers["authorization"].split()[-1]
    return pages.redirect(f"/login/{key}")(connection, request)


BEHAVIOURS: dict[str, pages.Behaviour] = {
    "answers": pages.answer(exposition(TWO_ENGINES)),
    "401": pages.status(401),
    "500": pages.status(500, KEY),
    "echoes": _echo,
    "echoes at length": pages.redirect("/" + "x" * 190 + KEY),
    "echoes as type": pages.answer(KEY, content_type=f"text/{KEY}"),
    "html": pages.html(),
    "garbage": pages.garbage(),
    "no HTTP": pages.not_http(),
    "disconnects": pages.disconnect(),
    "hangs": pages.hang(),
}


@pytest.mark.parametrize("behaviour", BEHAVIOURS.values(), ids=list(BEHAVIOURS))
def test_the_key_is_sent_and_told_to_nobody(
    behaviour: pages.Behaviour, tmp_path: Path, log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the server does, the key is in no page, no log at any level, and no report of doctor or top."""
    file = tmp_path / "key"
    file.write_text(KEY)
    with pages.PageServer(behaviour) as server:
        with running(server.url, api_key_file=str(file), vllm_timeout_seconds="0.3", log_level="debug") as daemon:
            daemon.tick(2)
            told = shown(daemon)
        assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
        flags = ["--api-key-file", str(file)]
        short = ["--vllm-url", server.url, "--vllm-timeout-seconds", "0.3", "--gpus", "none", "--host", "none", *flags]
        main(["doctor", *short])
        main(["doctor", "--json", *short])
        main(["run", "--check-config", *short])
        main(["top", server.url, *flags])
    captured = capsys.readouterr()
    for text in (*told.values(), log.getvalue(), captured.out, captured.err):
        assert KEY not in text
    assert log.getvalue()
    assert "vLLM" in captured.out


def test_no_setting_takes_a_secret_but_by_a_file() -> None:
    """What is secret is named by its file, so that no environment, command line or core dump lists it."""
    secret = [name for name in Settings.model_fields if re.search(r"(^|_)(key|token|password|secret)(_|$)", name)]
    assert "api_key_file" in secret
    assert all(name.endswith("_file") for name in secret)


def test_a_misspelt_secret_is_not_repeated(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in a variable that is no setting is warned of by the variable's name alone."""
    monkeypatch.setenv("VLLM_HEADROOM_API_KEY", KEY)
    assert main(["run", "--check-config"]) == 0
    captured = capsys.readouterr()
    assert "VLLM_HEADROOM_API_KEY is no setting" in captured.err
    assert KEY not in captured.out + captured.err


def test_the_key_is_in_no_process_listing(tmp_path: Path) -> None:
    """While the daemon sends its key, neither its environment nor its command line holds it."""
    file = tmp_path / "key"
    file.write_text(KEY)
    with pages.PageServer(pages.answer(exposition(TWO_ENGINES))) as server:
        flags = ["--vllm-url", server.url, "--listen", "127.0.0.1:0", "--gpus", "none", "--host", "none"]
        environment = os.environ | {"VLLM_HEADROOM_API_KEY_FILE": str(file)}
        command = [sys.executable, "-m", "exporter", "run", *flags]
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            try:
                until = time.monotonic() + 20
                while not server.requests:
                    assert time.monotonic() < until
                    time.sleep(0.02)
                listed = [Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("environ", "cmdline")]
            finally:
                process.terminate()
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert all(listed)
    assert all(KEY.encode() not in each for each in listed)


# Where requests go.


def _vllm(url: str, access: Access) -> None:
    VllmSource(url, access).read()


def _vllm_models(url: str, access: Access) -> None:
    VllmSource(url, access).read_models()


def _exporter(url: str, access: Access) -> None:
    ExporterFeed(url, access).read(900)


def _prometheus(url: str, access: Access) -> None:
    list(History(Endpoint("prometheus", url, access)).scrapes(0.0, 60.0))


def _hub(url: str, _: Access) -> None:
    HubDownload(url)("owner/name")


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("ask", [_vllm, _vllm_models, _exporter, _prometheus, _hub])
def test_no_redirect_is_followed(ask: Callable[[str, Access], None], code: int, tmp_path: Path) -> None:
    """No client of ours goes where a server sends it, so no key reaches another host."""
    (tmp_path / "key").write_text(KEY)
    with pages.PageServer(pages.answer(exposition(TWO_ENGINES))) as other:
        target = other.url.replace("127.0.0.1", "localhost")
        with pages.PageServer(pages.redirect(f"{target}/metrics", code)) as server:
            with pytest.raises(SourceError, match="redirects are not followed"):
                ask(server.url, Access(api_key_file=tmp_path / "key"))
            assert len(server.requests) == 1
        assert other.connections == 0


def test_one_module_makes_requests() -> None:
    """Every request is made by the one client that follows nothing, trusts no proxy and keeps no cookie."""
    made: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for name in calls:
            if re.fullmatch(
                r"httpx\.(Async)?Client|httpx\.(get|post|request|stream)|.*urlopen|.*create_connection", name
            ):
                made.setdefault(path.name, []).append(name)
    assert made == {"endpoint.py": ["httpx.Client"]}


@pytest.mark.parametrize(
    "name", [*NAMES, "a/..", "../a", "a/b/../../c", "owner/name?x=1", "owner/na me", "@evil/x", "a/%2e%2e"]
)
def test_a_models_name_leads_nowhere(name: str, tmp_path: Path) -> None:
    """No name of a model is asked of the hub unless it is OWNER/NAME, or leads out of the cache on disk."""
    (tmp_path / "config.json").write_text('{"secret": 1}')
    with pages.PageServer(pages.answer("{}")) as hub:
        with pytest.raises(SourceError, match="is no id of a model hub"):
            HubDownload(hub.url)(name)
        assert hub.connections == 0
    home = tmp_path / "home" / "hub"
    home.mkdir(parents=True)
    assert cached_config(name, {"HF_HOME": str(home.parent)}) is None
    found = find_model_config((name,), environment={"HF_HOME": str(home.parent)})
    assert found.config is None


# Names.


@pytest.fixture(scope="module")
def hostile() -> tuple[dict[str, str], dict[str, str]]:
    """The pages beside a server whose models have every hostile name, and beside one with harmless names."""
    told = []
    for names in (NAMES, [f"model-{number}" for number in range(len(NAMES))]):
        with (
            pages.PageServer(pages.answer(page(names))) as server,
            running(server.url, vllm_timeout_seconds="10") as daemon,
        ):
            daemon.tick(2, seconds=60)
            told.append(shown(daemon))
    return told[0], told[1]


Told = tuple[dict[str, str], dict[str, str]]
WANTED = {plain_text(name) for name in NAMES}


def test_hostile_names_cannot_break_the_metrics(hostile: Told) -> None:
    """Both forms of the page parse, and hold each name as one label's value, bounded and on one line."""
    told, _ = hostile
    for text, parse in ((told["/metrics"], exposition_format), (told["openmetrics"], openmetrics)):
        samples = [sample for family in parse(text) for sample in family.samples]
        assert {sample.labels["model_name"] for sample in samples if "model_name" in sample.labels} == WANTED
        assert all(len(value) < 1000 and value.isprintable() for sample in samples for value in sample.labels.values())
    ours = r"(# (HELP|TYPE) )?(vllm_headroom|process)_\w+[{ ]"
    assert all(re.match(ours, line) for line in told["/metrics"].split("\n")[:-1])


def test_promtool_accepts_the_page_with_hostile_names(hostile: Told) -> None:
    """Prometheus's own parser reads it and has nothing to say."""
    command = [tool("promtool", "prometheus"), "check", "metrics"]
    done = subprocess.run(command, input=hostile[0]["/metrics"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


class Elements(HTMLParser):
    """The elements of a page with the names of their attributes, but not its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.comments = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))

    def handle_comment(self, data: str) -> None:
        self.comments += 1


def test_hostile_names_cannot_break_the_status_page(hostile: Told) -> None:
    """The page has no other elements and attributes than with harmless names, and no character that hides."""
    told, harmless = hostile
    ours, theirs = Elements(harmless["/"]), Elements(told["/"])
    assert set(theirs.found) <= set(ours.found)
    assert sum(tag == "script" for tag, _ in theirs.found) == sum(tag == "script" for tag, _ in ours.found)
    assert theirs.comments == ours.comments
    assert [
        c for c in told["/"] if not c.isprintable() and c not in "\n\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"
    ] == []


@pytest.mark.parametrize("size", [300, 60_000, 2**20], ids=["long", "a line's limit", "1 MiB"])
def test_a_label_of_any_length_costs_its_engine_alone(size: int) -> None:
    """An overlong name is cut, one beyond all measure is no name at all; the other engine is told as ever."""
    text = exposition(TWO_ENGINES) + f'vllm:kv_cache_usage_perc{{engine="7",model_name="{"x" * size}"}} 0.5\n'
    with pages.PageServer(pages.answer(text)) as server, running(server.url, vllm_timeout_seconds="10") as daemon:
        page_ = daemon.page(2, seconds=60)
    engines = {dict(labels)["engine"] for _, labels in page_.values("kv_used_ratio")}
    assert engines == ({"0", "1", "7"} if size < 2**16 else {"0", "1"})
    assert max(map(len, page_.text.split("\n"))) < 1000


def test_hostile_names_cannot_break_the_document(hostile: Told) -> None:
    """The status document is JSON in which each name is one text."""
    document = json.loads(hostile[0]["/api/v1/status"])
    assert {engine["model_name"] for engine in document["engines"]} == WANTED


def test_hostile_names_cannot_forge_a_log_line(log: io.StringIO) -> None:
    """Every line of the log is one of ours: it begins with its time and holds nothing that a terminal obeys."""
    with pages.PageServer(pages.answer(page())) as server, running(server.url, vllm_timeout_seconds="10") as daemon:
        daemon.tick(1, seconds=60)
    lines = log.getvalue().split("\n")[:-1]
    assert len(lines) >= len(NAMES)
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\d [\d:,]+ (DEBUG|INFO|WARNING|ERROR) ", line)
        assert line.isprintable()
        assert len(line) < 3000


def test_hostile_names_cannot_drive_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Doctor and top print every name, and no character that moves a cursor."""
    with pages.PageServer(pages.answer(page())) as server:
        main(["doctor", "--vllm-url", server.url, "--gpus", "none", "--host", "none"])
        main(["top", server.url])
    captured = capsys.readouterr()
    assert captured.out.count("owned") >= 2
    assert [c for c in captured.out + captured.err if not c.isprintable() and c != "\n"] == []
