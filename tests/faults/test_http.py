"""The model hub and Prometheus go wrong in every way that HTTP has: each is told, and good again when it is."""

import json
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from exporter.cli import main as cli
from exporter.errors import HeadroomError, SourceError
from exporter.kv.live import live_arithmetic
from exporter.models import RETRY_SECONDS, ServedModels
from exporter.reading import CacheConfig
from exporter.sources.endpoint import Access, Endpoint
from exporter.sources.hub import HubDownload
from exporter.sources.model_config import find_model_config
from exporter.sources.prometheus import SOURCE, History
from tests.faults.servers import LIMIT_BYTES, Names, serve, stop, troubles, url
from tests.support import pages

AUTHORITY = trustme.CA()
NAMES = tuple(troubles(Names(), AUTHORITY))
CONFIG = (Path(__file__).parents[2] / "exporter/demo/model/config.json").read_bytes()
CACHE = CacheConfig(block_size=16, num_gpu_blocks=1000)
HURRY_SECONDS, AMPLE_SECONDS = 0.3, 10.0
"""Where a server is meant to be too late, and where it is not, however busy the machine."""
HISTORY = {
    "status": "success",
    "data": {
        "resultType": "matrix",
        "result": [
            {
                "metric": {"__name__": "vllm:num_requests_running", "engine": "0", "model_name": "m"},
                "values": [[5, "1"]],
            }
        ],
    },
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """A name service that may forget."""
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    return names


@pytest.fixture(autouse=True)
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The authority that signs the servers, known to whoever asks OpenSSL for the system's."""
    file = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(file)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return file


@pytest.mark.parametrize("name", NAMES)
def test_a_hub_that_goes_wrong_costs_the_architecture_alone(names: Names, name: str) -> None:
    """The model is unknown with a reason, nothing is raised, and the next look, a minute later, finds it."""
    trouble = troubles(names, AUTHORITY)[name]
    server = serve(trouble)
    try:
        seconds = [HURRY_SECONDS if trouble.reason == "timeout" else AMPLE_SECONDS]

        def download(model_id: str) -> bytes:
            return HubDownload(url(trouble, server), timeout_seconds=seconds[0])(model_id)

        def served() -> tuple[()]:
            raise SourceError("vllm", "timeout", "no models are listed")

        models = ServedModels(
            served,
            lambda ids: find_model_config(ids, environment={"HF_HOME": "/nonexistent"}, download=download),
            lambda config, cache, length: live_arithmetic(config, cache, max_model_len=length),
            lambda _config: {"logits_chunk": 1},
            max_model_len=4096,
        )
        trouble.inflict(server)
        begun = time.monotonic()
        assert models.facts("owner/model", CACHE, 0.0).arithmetic is None
        assert time.monotonic() - begun < 8
        assert models.health is not None
        assert (models.health.up, models.health.reason) == (False, "unknown_architecture")
        assert "owner/model" in models.health.message
        trouble.mend(server)
        seconds[0] = AMPLE_SECONDS
        server.behaviour = pages.answer(CONFIG, content_type="application/json")
        assert models.facts("owner/model", CACHE, RETRY_SECONDS - 1).arithmetic is None
        assert models.facts("owner/model", CACHE, RETRY_SECONDS + 1).arithmetic is not None
        assert models.health.up
    finally:
        stop(server)


@pytest.mark.parametrize("name", NAMES)
def test_a_prometheus_that_goes_wrong_ends_the_backtest_with_a_line(names: Names, name: str, bundle: Path) -> None:
    """Whatever it does, reading it is over in time with one of our errors; and it is read when it is good again."""
    trouble = troubles(names, AUTHORITY)[name]
    server = serve(trouble)
    seconds = HURRY_SECONDS if trouble.reason == "timeout" else AMPLE_SECONDS
    access = Access(timeout_seconds=seconds, body_limit_bytes=LIMIT_BYTES, tls_ca_file=bundle)
    endpoint = Endpoint(SOURCE, url(trouble, server), access)
    try:
        history = History(endpoint)
        trouble.inflict(server)
        begun = time.monotonic()
        with pytest.raises(HeadroomError):
            list(history.scrapes(0, 10))
        assert time.monotonic() - begun < 8
        trouble.mend(server)
        server.behaviour = pages.answer(json.dumps(HISTORY), content_type="application/json")
        endpoint.close()
        endpoint = Endpoint(SOURCE, url(trouble, server), replace(access, timeout_seconds=AMPLE_SECONDS))
        assert [scrape.time for scrape in History(endpoint).scrapes(0, 10)] == [5.0]
    finally:
        endpoint.close()
        stop(server)


def test_the_backtest_itself_ends_with_a_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback and no report: what was wrong, with whom."""
    with pages.PageServer(pages.garbage()) as server:
        assert cli(["backtest", "--prometheus", server.url, "--start", "0", "--end", "10"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert server.url in line


def test_a_report_for_which_there_is_no_room(capsys: pytest.CaptureFixture[str]) -> None:
    """A full disk is one line and exit code 2."""
    with pages.PageServer(pages.answer(json.dumps(HISTORY), content_type="application/json")) as server:
        asked = ["backtest", "--prometheus", server.url, "--start", "0", "--end", "10", "--report", "/dev/full"]
        assert cli(asked) == 2
        assert capsys.readouterr().err.splitlines()[-1].endswith("cannot be written: No space left on device")
