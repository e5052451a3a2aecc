"""Files that are not there, hang, are cut short, endless or garbage: the container's, and the model's config.json."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.sources import model_config
from tests.sources.trees import GIB, SERVE, Machine, group_v2
from tests.support import pages
from tests.support.daemon import Page, Running, running
from tests.support.expositions import exposition

PAGE = exposition("vllm-0.32-one-engine-full.prom")
GROUP = "kubepods.slice/kubepods-pod1.slice/cri-a.scope"
CONFIG = (Path(__file__).parents[2] / "exporter/demo/model/config.json").read_bytes()

AMPLE = {"vllm_timeout_seconds": "20"}
"""It is not vLLM's page that is late here, however busy the machine."""


@dataclass
class Scene:
    """A daemon over a tree of files, all of which belong to the test."""

    exporter: Running
    machine: Machine

    @property
    def group(self) -> Path:
        """The container's control group."""
        return self.machine.cgroup / GROUP

    def whole(self) -> None:
        """Every file as it should be."""
        if self.group.exists():
            shutil.rmtree(self.group)
        group_v2(self.group, 20 * GIB, limit=64 * GIB, anon=19 * GIB, kills=3)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    (machine.process(100, SERVE, started=100, group=f"0::/{GROUP}") / "root").mkdir()
    group_v2(machine.cgroup / GROUP, 20 * GIB, limit=64 * GIB, anon=19 * GIB, kills=3)
    places = AMPLE | {"host": "auto", "proc_dir": str(machine.proc), "cgroup_dir": str(machine.cgroup)}
    with pages.PageServer(pages.answer(PAGE)) as server, running(server.url, **places) as exporter:
        yield Scene(exporter, machine)


def replaced(path: Path, content: bytes | None) -> None:
    """Put other bytes, or a directory, in the place of a file."""
    path.unlink()
    path.mkdir() if content is None else path.write_bytes(content)


FAULTS: dict[str, tuple[Callable[[Path], None], set[str]]] = {
    "refused": (lambda group: replaced(group / "memory.current", None), {"current", "limit", "anon"}),
    "vanished": (shutil.rmtree, {"limit", "anon"}),
    "garbage": (lambda group: replaced(group / "memory.stat", bytes(range(256)) * 20), {"anon", "file", "committed"}),
    "garbled pressure": (lambda group: replaced(group / "memory.pressure", b"some avg10=x avg60=\xff total"), set()),
    "truncated": (lambda group: replaced(group / "memory.stat", b"anon 20401094656\nfile 0\nshm"), {"shmem"}),
    "empty": (lambda group: replaced(group / "memory.max", b""), {"limit"}),
    "huge": (lambda group: replaced(group / "memory.stat", b"x 1\n" * 2_000_000), {"anon", "file"}),
    "a number beyond all numbers": (lambda group: replaced(group / "memory.max", b"9" * 5000), {"limit"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_file_that_goes_wrong_costs_what_it_tells(scene: Scene, name: str) -> None:
    """What cannot be read is absent, never 0 and never as it was; the rest goes on, and all is back two ticks later."""
    scene.whole()
    before = scene.exporter.page(ticks=2)
    kinds = {dict(labels)["kind"] for _, labels in before.values("host_memory_bytes")}
    spoil, lost = FAULTS[name]
    spoil(scene.group)
    page = scene.exporter.page(ticks=2)
    left = {dict(labels)["kind"] for _, labels in page.values("host_memory_bytes")}
    assert lost <= kinds - left
    assert {"machine_total", "machine_available"} <= left
    assert page.value("source_up", source="vllm") == 1
    assert page.value("host_oom_kills_total") == before.value("host_oom_kills_total")
    scene.whole()
    after = scene.exporter.page(ticks=3)
    assert after.values("host_memory_bytes") == before.values("host_memory_bytes")
    assert (after.value("host_oom_kills_total") or 0) >= (before.value("host_oom_kills_total") or 0)
    assert after.value("host_server_starts_total") == 1


@contextmanager
def hanging(path: Path) -> Iterator[None]:
    """A file whose reader waits until the context ends."""
    path.unlink()
    os.mkfifo(path)
    try:
        yield
    finally:
        # Whoever waits is let go: a writer comes, and goes without a word, when nobody can begin to wait any more.
        writer = None
        with suppress(OSError):
            writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        path.unlink()
        if writer is not None:
            os.close(writer)


def test_a_file_of_the_kernels_that_hangs_takes_its_source_down_alone(scene: Scene) -> None:
    """Ticks go on without the container, which is down for `timeout`; when the file answers, it is back."""
    scene.whole()
    before = scene.exporter.page(ticks=2)
    content = (scene.group / "memory.stat").read_bytes()
    with hanging(scene.group / "memory.stat"):
        page = wait_for(scene.exporter, lambda page: page.value("source_up", source="host") == 0)
        assert page.values("source_down_reason", source="host", reason="timeout")
        assert not page.values("host_memory_bytes")
        further = scene.exporter.page(ticks=3)
        assert further.value("source_up", source="vllm") == 1
    (scene.group / "memory.stat").write_bytes(content)
    after = scene.exporter.page(ticks=3)
    assert after.value("source_up", source="host") == 1
    assert after.values("host_memory_bytes") == before.values("host_memory_bytes")
    assert after.value("host_oom_kills_total") == before.value("host_oom_kills_total")


def wait_for(exporter: Running, wanted: Callable[[Page], bool]) -> Page:
    """The first page that is as wanted."""
    end = time.monotonic() + 20
    while not wanted(page := exporter.page(ticks=1)):
        assert time.monotonic() < end, page.text
    return page


CONFIGS: dict[str, bytes | None] = {
    "refused": None,
    "garbage": bytes(range(256)),
    "truncated": CONFIG[:100],
    "huge": b"[" + b"1," * (model_config.MAX_BYTES // 2 + 1),
    "nested without end": b"[" * 200_000,
    "of another shape": b'{"architectures": 7, "hidden_size": {"a": []}, "model_type": null}',
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_goes_wrong_costs_the_architecture_alone(tmp_path: Path, name: str) -> None:
    """The model is unknown with a reason; the page, the pool that the engine tells and the forecast go on."""
    file = tmp_path / "config.json"
    file.write_bytes(CONFIG)
    replaced(file, CONFIGS[name])
    with (
        pages.PageServer(pages.answer(PAGE)) as server,
        running(server.url, architecture_file=str(file), **AMPLE) as exporter,
    ):
        page = exporter.page(ticks=2)
        assert page.values("source_down_reason", source="model_config", reason="unknown_architecture")
        assert page.value("source_up", source="vllm") == 1
        assert page.values("kv_used_ratio")
        assert not page.values("kv_calibration_ratio")


def test_a_config_that_hangs_holds_no_tick_up(tmp_path: Path) -> None:
    """On a file system that does not answer the look is left alone; what it brings later is taken at the next tick."""
    file = tmp_path / "config.json"
    file.write_bytes(CONFIG)
    flags = AMPLE | {"architecture_file": str(file), "max_model_len": "4096"}
    with pages.PageServer(pages.answer(PAGE)) as server, hanging(file), running(server.url, **flags) as exporter:
        page = exporter.page(ticks=4)
        assert page.values("source_down_reason", source="model_config", reason="timeout")
        assert page.values("kv_used_ratio")
        with file.open("wb") as writer:
            writer.write(CONFIG)
        page = wait_for(exporter, lambda page: page.value("source_up", source="model_config") == 1)
        assert page.values("kv_bytes_per_token")
