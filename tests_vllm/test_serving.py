"""Ways in which servers are served: with a key, below a root path, over TLS."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests_vllm.conftest import Watching
from tests_vllm.findings import Findings
from tests_vllm.load import Load
from tests_vllm.paced import PacedServer

KEY = "a-key-of-this-test"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who signs the server's certificate."""
    return trustme.CA()


@pytest.fixture(scope="module")
def guarded(model: Path, place: Path, authority: trustme.CA) -> Iterator[PacedServer]:
    """One server with all three."""
    certificate = authority.issue_cert("127.0.0.1")
    key, chain, trust = place / "tls.key", place / "tls.pem", place / "ca.pem"
    certificate.private_key_pem.write_to_path(key)
    certificate.cert_chain_pems[0].write_to_path(chain)
    authority.cert_pem.write_to_path(trust)
    flags = ["--num-gpu-blocks-override", "256", "--api-key", KEY, "--root-path", "/llm"]
    flags += ["--served-model-name", "served"]
    flags += ["--ssl-keyfile", str(key), "--ssl-certfile", str(chain)]
    with PacedServer(model, place, "guarded", *flags, root="/llm", key=KEY, certificate=trust) as server:
        yield server


def test_all_three_at_once(guarded: PacedServer, watching: Watching, place: Path, findings: Findings) -> None:
    """With the key in a file, the CA's certificate and the root path in the URL everything is read."""
    key = place / "api-key"
    key.write_text(KEY + "\n")
    exporter = watching(guarded, api_key_file=str(key), tls_ca_file=str(guarded.certificate))
    with Load(guarded) as load:
        requests = [load.send(100, 150) for _ in range(4)]
        reading = exporter.wait(lambda now: now.value("requests", state="running") == 4, 30, "four running requests")
        load.wait(60)
    assert [request.fault for request in requests if request.fault] == []
    assert reading.used
    assert reading.value("source_up", source="vllm") == 1
    assert reading.value("kv_calibration_ratio") == 1.0, (
        "the model's path comes from /v1/models, which asks for the key"
    )
    findings.note("key, root path and TLS", used_blocks=reading.used, calibration_ratio=1.0)


def test_without_the_key_the_page_is_read_and_the_model_is_not(guarded: PacedServer, watching: Watching) -> None:
    """The key guards /v1 and not the page: usage is there, the model is unknown, and the reason is told."""
    exporter = watching(guarded, tls_ca_file=str(guarded.certificate))
    reading = exporter.next(2)
    assert reading.value("source_up", source="vllm") == 1
    assert reading.used == 0
    assert reading.value("kv_calibration_ratio") is None
    assert reading.value("source_down_reason", source="model_config") == 1
    assert KEY not in exporter.said()


def test_a_certificate_that_nobody_vouches_for_is_refused(guarded: PacedServer, watching: Watching) -> None:
    """Without the CA nothing is read and the reason is TLS; told to skip the check, it reads."""
    refused = watching(guarded).next(2)
    assert refused.value("source_up", source="vllm") == 0
    assert refused.value("source_down_reason", source="vllm", reason="tls") == 1
    assert refused.used is None
    assert watching(guarded, tls_skip_verify="true").next(2).used == 0
