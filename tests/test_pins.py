"""The pins: one version everywhere, and dependencies that are pinned within what is allowed."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import exporter

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
RUNTIME = [Requirement(line) for line in (*PROJECT["dependencies"], *EXTRAS["web"])]


def pins(name: str) -> list[tuple[Requirement, int]]:
    """The pins of a file of requirements, with the number of hashes that each has."""
    text = (ROOT / "requirements" / name).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    return [
        (Requirement(re.split(r"\s*\\?\n|\s+--hash", each)[0].rstrip(" \\")), each.count("sha256:")) for each in entries
    ]


def versions(name: str, python: str = "3.13") -> dict[str, str]:
    """Which release of what a file pins, on Linux with that Python."""
    where = {key: str(value) for key, value in default_environment().items()}
    where |= {"python_version": python, "python_full_version": f"{python}.0"}
    found: dict[str, str] = {}
    for pin, _ in pins(name):
        (only,) = pin.specifier
        assert only.operator == "=="
        if pin.marker is None or pin.marker.evaluate(where):
            found[canonicalize_name(pin.name)] = only.version
    return found


@pytest.mark.parametrize("name", ["image.txt", "oldest.txt"])
@pytest.mark.parametrize("python", ["3.11", "3.13", "3.14"])
def test_every_dependency_is_pinned_within_its_bounds(name: str, python: str) -> None:
    """Whatever the wheel asks for is pinned, to a release that it allows: make them anew with scripts/pin."""
    pinned = versions(name, python)
    for wanted in RUNTIME:
        assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)]), wanted


@pytest.mark.parametrize("name", ["image.txt", "build.txt"])
def test_every_pin_of_the_image_has_its_hashes(name: str) -> None:
    """Nothing that the image installs can be another file than the one that was pinned."""
    for pin, hashes in pins(name):
        assert hashes >= 1, pin


def test_the_build_is_pinned() -> None:
    """What builds the wheel in the image is what pyproject.toml asks for."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    pinned = versions("build.txt")
    for wanted in map(Requirement, asked):
        assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)])


def test_the_oldest_are_the_lower_bounds() -> None:
    """What scripts/test-oldest and the test of the wheel install are the very releases that the bounds name."""
    pinned = versions("oldest.txt", "3.11")
    for wanted in (*RUNTIME, *map(Requirement, EXTRAS["terminal"])):
        (bound,) = (each.version for each in wanted.specifier if each.operator == ">=")
        told = pinned[canonicalize_name(wanted.name)].split(".")
        asked = bound.split(".")
        assert told[: len(asked)] == asked, wanted
        assert set(told[len(asked) :]) <= {"0"}, wanted


def test_the_bill_of_materials_names_what_is_pinned() -> None:
    """Every pin of the image is in requirements/image.cdx.json with its licence, and so are we; nothing else is."""
    bom = json.loads((ROOT / "requirements" / "image.cdx.json").read_text())
    assert bom["bomFormat"] == "CycloneDX"
    listed = {canonicalize_name(each["name"]): each["version"] for each in bom["components"]}
    assert listed == versions("image.txt")
    assert all(each.get("licenses") for each in bom["components"])
    assert bom["metadata"]["component"]["name"] == "vllm-headroom"


def test_the_image_is_built_of_pins_alone() -> None:
    """Every installation in the recipe is of hashed pins, or of our own wheel without dependencies."""
    recipe = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip install [^&\n]*", recipe)
    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install or "--no-deps /wheel/" in install


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


def test_there_is_one_version() -> None:
    """The package, the chart that installs it and the newest entry of the changelog tell the same version."""
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "vllm-headroom" / "Chart.yaml").read_text())
    assert chart["appVersion"] == exporter.__version__
    assert PROJECT["dynamic"] == ["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[?(\d+\.\d+\.\d+)", changelog, re.MULTILINE)
    assert released[:1] in ([], [exporter.__version__])
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy" / "examples").rglob("*.*")]
    told = {found for path in texts for found in re.findall(r"vllm-headroom:v?(\d+\.\d+\.\d+)", path.read_text())}
    assert told == {exporter.__version__}
