"""Servers that several checks share, and the book in which every check writes what it found."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests_vllm.exporter import Exporter
from tests_vllm.findings import Findings
from tests_vllm.paced import BLOCK_SIZE, PacedServer
from tests_vllm.server import VllmServer
from tests_vllm.tiny import make_model

USABLE = 255
Watching = Callable[..., Exporter]


def pytest_configure() -> None:
    """Told to end, end as on Ctrl-C: the fixtures stop their servers, which would live on otherwise."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where models, logs and ledgers of this run lie."""
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="session")
def model(place: Path) -> Path:
    """The tiny Llama."""
    return make_model(place / "tiny", max_position_embeddings=8192)


@pytest.fixture(scope="session")
def findings() -> Iterator[Findings]:
    """What this run found; kept when it ends."""
    book = Findings()
    yield book
    book.save()


@pytest.fixture(scope="session")
def shared(model: Path, place: Path) -> Iterator[PacedServer]:
    """The server of most checks, for all of them: starting one takes longer than what is done with it."""
    flags = ("--num-gpu-blocks-override", str(USABLE + 1))
    mode = {"VLLM_SERVER_DEV_MODE": "1"}
    with PacedServer(model, place, "main", *flags, max_model_len=USABLE * BLOCK_SIZE, more=mode) as running:
        yield running


@pytest.fixture
def server(shared: PacedServer) -> PacedServer:
    """One engine with 255 usable blocks, which one request can fill, and which may be put to sleep; it runs."""
    if not shared.running:
        shared.start()
    return shared


@pytest.fixture
def watching(place: Path) -> Iterator[Callable[[VllmServer], Exporter]]:
    """Starts a fresh exporter beside a server; each ends with its test."""
    open_ones: list[Exporter] = []

    def watch(server: VllmServer, **settings: str) -> Exporter:
        exporter = Exporter(server.url, place / f"exporter-{len(list(place.glob('exporter-*')))}.log", **settings)
        open_ones.append(exporter)
        return exporter.__enter__()

    yield watch
    for exporter in reversed(open_ones):
        exporter.__exit__()
