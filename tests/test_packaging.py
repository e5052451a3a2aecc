"""What is built from this repository: the wheel, the source distribution, and the image's recipe."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.support import pages
from tests.support.expositions import exposition

PINS = ("image.txt", "oldest.txt") if sys.version_info < (3, 13) else ("image.txt",)
"""The oldest releases allowed have no wheels for newer Pythons than these: there, what pip finds is newer anyway."""
ROOT = Path(__file__).parent.parent


def tracked(*below: str) -> list[str]:
    """The repository's files."""
    command = ["git", "ls-files", "--", *below]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def built(source: Path, target: Path, kind: str, **environment: str) -> Path:
    """A distribution, built as an installer builds it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120, env=os.environ | environment)
    (found,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the working tree."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two copies of the repository that differ in path, age and what the maker's umask left of the files' modes."""
    made = []
    for number, mode in enumerate((0o644, 0o600)):
        copy = tmp_path_factory.mktemp(f"copy-{'x' * number}")
        for name in tracked():
            path = copy / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, path)
            path.chmod(mode | (0o100 if os.access(ROOT / name, os.X_OK) else 0))
            os.utime(path, (1_600_000_000 + 1000 * number,) * 2)
        made.append(copy)
    return made[0], made[1]


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
@pytest.mark.parametrize("epoch", [None, "1700000000"], ids=["no epoch", "an epoch"])
def test_two_builds_are_the_same_bytes(copies: tuple[Path, Path], tmp_path: Path, kind: str, epoch: str | None) -> None:
    """Who builds where and when makes no difference, with or without SOURCE_DATE_EPOCH."""
    environment = {} if epoch is None else {"SOURCE_DATE_EPOCH": epoch}
    first, second = (
        built(copy, tmp_path / str(number), kind, **environment).read_bytes() for number, copy in enumerate(copies)
    )
    assert first == second


def test_the_sdist_holds_what_its_tests_need(copies: tuple[Path, Path], tmp_path: Path) -> None:
    """Every file of the repository is in it, and nothing else but the metadata."""
    with tarfile.open(built(copies[0], tmp_path, "sdist")) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert names - {"PKG-INFO"} == set(tracked())


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Every file of the package is in it, data included; tests, docs and charts are not."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names >= set(tracked("exporter"))
    assert all(name.startswith("exporter/") for name in names)


def test_the_wheel_runs_from_where_it_is_unpacked(wheel: Path, tmp_path: Path) -> None:
    """Unpacked anywhere, the commands start and find their data files."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    config = tmp_path / "config.json"
    config.write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    for arguments in (["--version"], ["plan", "--model-config", str(config), "--gpu-memory-bytes", str(40 * 2**30)]):
        command = [sys.executable, "-P", "-m", "exporter", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def served_url(process: subprocess.Popen[str]) -> str:
    """Where the daemon says that it serves."""
    assert process.stderr is not None
    found = (re.search(r"serves (http://\S+)", line) for line in process.stderr)
    return next(match[1] for match in found if match)


@pytest.mark.parametrize("pins", PINS)
def test_the_wheel_watches_a_server_from_an_empty_environment(wheel: Path, tmp_path: Path, pins: str) -> None:
    """With the oldest dependencies allowed, and with the image's, checked by their hashes, it runs and serves."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True, timeout=60)
    inside = tmp_path / "env" / "bin"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(inside / "python")]
    pinned = [
        "--requirement",
        str(ROOT / "requirements" / pins),
        *(["--require-hashes"] if pins == "image.txt" else []),
    ]
    subprocess.run([*pip, "install", "--only-binary", ":all:", *pinned], check=True, timeout=300)
    subprocess.run([*pip, "install", "--no-deps", str(wheel)], check=True, timeout=60)
    subprocess.run([*pip, "check"], check=True, timeout=60)
    with pages.PageServer(pages.answer(exposition("vllm-0.32-one-engine-full.prom"))) as server:
        command = [
            str(inside / "vllm-headroom"),
            "run",
            "--listen",
            "127.0.0.1:0",
            "--gpus",
            "none",
            "--vllm-url",
            server.url,
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            url = served_url(process)
            while httpx.get(f"{url}/readyz").status_code != 200:
                assert process.poll() is None
                time.sleep(0.05)
            assert 'vllm_headroom_source_up{source="vllm"} 1.0' in httpx.get(f"{url}/metrics").text
            assert httpx.get(f"{url}/").status_code == 200
        finally:
            process.kill()
            process.communicate()
