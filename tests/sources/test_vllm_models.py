"""What is asked of a server besides its page, and the key that is sent along."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.errors import SourceError
from exporter.sources.vllm import Access, ServedModel, VllmSource
from tests.support.expositions import TWO_ENGINES, exposition
from tests.support.pages import (
    PageServer,
    answer,
)

PAGE = exposition(TWO_ENGINES)
MODELS = exposition("vllm-0.32-v1-models.json")


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer(answer(PAGE)) as server:
        yield server


@pytest.fixture
def source(server: PageServer) -> Iterator[VllmSource]:
    source = VllmSource(server.url, Access(timeout_seconds=5))
    yield source
    source.close()


def test_the_key_is_read_anew_for_every_request(server: PageServer, tmp_path: Path) -> None:
    """A key that is replaced while the exporter runs is used from the next reading on."""
    file = tmp_path / "key"
    file.write_text("first-key\n")
    source = VllmSource(server.url, Access(api_key_file=file))
    source.read()
    file.write_text("second-key")
    source.read()
    source.close()
    assert [r.headers["authorization"] for r in server.requests] == ["Bearer first-key", "Bearer second-key"]


def test_models_are_told_with_their_root_and_length(server: PageServer, source: VllmSource) -> None:
    """`/v1/models` of a real server gives id, root and the longest context."""
    server.routes["/v1/models"] = answer(MODELS, content_type="application/json")
    assert source.read_models() == (ServedModel("tiny", "./tiny", 4096, None),)


def test_models_of_odd_shape_are_left_out(server: PageServer, source: VllmSource) -> None:
    """An entry without a usable id is dropped, a field of the wrong kind is absent, an adapter names its parent."""
    text = """{"data": [{"id": "a", "root": 7, "max_model_len": "long"}, {"id": ""}, {"id": "evil\\nname"}, 5, {},
        {"id": "adapter", "root": "/lora", "max_model_len": true, "parent": "a"}, {"id": "b", "max_model_len": -1}]}"""
    server.routes["/v1/models"] = answer(text, content_type="application/json")
    assert source.read_models() == (
        ServedModel("a"),
        ServedModel("adapter", "/lora", None, "a"),
        ServedModel("b"),
    )


def test_a_length_beyond_all_measure_is_none(server: PageServer, source: VllmSource) -> None:
    """A whole number of any size is JSON; one that no float holds would end whatever reckons with it."""
    text = f'{{"data": [{{"id": "a", "max_model_len": {10**400}}}, {{"id": "b", "max_model_len": {2**53}}}]}}'
    server.routes["/v1/models"] = answer(text, content_type="application/json")
    assert source.read_models() == (ServedModel("a"), ServedModel("b", max_model_len=2**53))


def test_the_models_are_bounded_in_number(server: PageServer, source: VllmSource) -> None:
    """Of a list without end, as many are kept as any server has."""
    entries = ",".join(f'{{"id":"m{index}"}}' for index in range(3000))
    server.routes["/v1/models"] = answer(f'{{"data":[{entries}]}}', content_type="application/json")
    assert len(source.read_models()) == 1000


def test_the_version_is_told(server: PageServer, source: VllmSource) -> None:
    """`/version` gives the version as the server writes it."""
    server.routes["/version"] = answer('{"version":"0.32.0+cpu"}', content_type="application/json")
    assert source.read_version() == "0.32.0+cpu"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("not json", "not_json"),
        ("[]", "not_json"),
        ("{}", "not_json"),
        ('{"version": 3, "data": {}}', "not_json"),
        ("[" * 100_000, "not_json"),
        ('{"data": "' + "x" * 1_100_000 + '"}', "too_large"),
    ],
    ids=["text", "list", "nothing", "wrong kinds", "deep", "huge"],
)
def test_models_and_version_fail_alone(server: PageServer, source: VllmSource, body: str, reason: str) -> None:
    """Whatever those two answer, they raise a `SourceError`, and the page is read as before."""
    server.routes["/v1/models"] = server.routes["/version"] = answer(body, content_type="application/json")
    for ask in (source.read_models, source.read_version):
        with pytest.raises(SourceError) as error:
            ask()
        assert error.value.reason == reason
        assert source.read().engines
