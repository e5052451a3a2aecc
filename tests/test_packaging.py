"""What is built from this repository: the wheel and the image's recipe."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "exporter"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as an installer builds it."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Every file of the package is in it, data included; tests, docs and charts are not."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(
        ["git", "ls-files", "exporter"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    assert names >= {name for name in tracked if (ROOT / name).exists()}
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


def test_the_image_runs_as_nobody_and_writes_nothing() -> None:
    """The recipe is accepted by hadolint, sets the user 65534 by number and writes no bytecode."""
    recipe = (ROOT / "Dockerfile").read_text()
    assert "USER 65534:65534" in recipe
    assert "PYTHONDONTWRITEBYTECODE=1" in recipe
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_copies_what_the_build_needs() -> None:
    """Every file that the recipe copies passes .dockerignore."""
    ignored = (ROOT / ".dockerignore").read_text().split()
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert f"!{source}" in ignored, source
                assert (ROOT / source).exists()
