"""The model's config.json is found where it is, in the stated order, and its absence is a result."""

import json
from pathlib import Path

import pytest

from exporter.errors import InputError
from exporter.sources.model_config import MAX_BYTES, cached_config, find_model_config, read_config_file


def _write(path: Path, name: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"model_type": name}), encoding="utf-8")
    return path


def _cache(home: Path, revision: str = "abc", *, model: str = "org/model") -> Path:
    repository = home / "hub" / f"models--{model.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(revision + "\n", encoding="utf-8")
    return _write(repository / "snapshots" / revision / "config.json", "cached")


def test_the_configured_path_comes_first(tmp_path: Path) -> None:
    """A configured file is read even if the server names a directory with another."""
    _write(tmp_path / "served" / "config.json", "served")
    found = find_model_config(
        (str(tmp_path / "served"),), configured=_write(tmp_path / "mine.json", "mine"), environment={}
    )
    assert found.origin == "configured"
    assert found.config == {"model_type": "mine"}


def test_the_configured_path_may_be_a_directory(tmp_path: Path) -> None:
    """The config.json inside it is meant."""
    file = _write(tmp_path / "config.json", "mine")
    found = find_model_config((), configured=tmp_path, environment={})
    assert (found.found, found.path) == (True, file)


def test_the_servers_root_comes_before_the_cache(tmp_path: Path) -> None:
    """`root` of /v1/models is used if it is a directory with a config.json."""
    _write(tmp_path / "served" / "config.json", "served")
    _cache(tmp_path)
    found = find_model_config((str(tmp_path / "served"), "org/model"), environment={"HF_HOME": str(tmp_path)})
    assert found.origin == "root"


def test_the_cache_is_searched_for_the_id(tmp_path: Path) -> None:
    """The snapshot that refs/main names is read."""
    file = _cache(tmp_path)
    found = find_model_config(("org/model",), environment={"HF_HOME": str(tmp_path)})
    assert (found.origin, found.path) == ("hf_cache", file)


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"])
def test_every_place_of_the_cache_is_known(tmp_path: Path, variable: str) -> None:
    """The cache moves with each of the variables that move it."""
    below = {"HF_HUB_CACHE": "", "HF_HOME": "", "XDG_CACHE_HOME": "huggingface", "HOME": ".cache/huggingface"}[variable]
    _cache(tmp_path / below)
    value = tmp_path / "hub" if variable == "HF_HUB_CACHE" else tmp_path
    assert cached_config("org/model", {variable: str(value)}) is not None


def test_a_cache_without_refs_gives_its_newest_snapshot(tmp_path: Path) -> None:
    """A snapshot is found even if no ref names it."""
    _cache(tmp_path)
    (tmp_path / "hub" / "models--org--model" / "refs" / "main").unlink()
    assert cached_config("org/model", {"HF_HOME": str(tmp_path)}) is not None


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "/etc", "a/b/c"])
def test_names_that_are_no_ids_are_not_looked_up(tmp_path: Path, name: str) -> None:
    """A served name cannot lead out of the cache."""
    assert cached_config(name, {"HF_HOME": str(tmp_path)}) is None


def test_a_ref_cannot_lead_out_of_the_snapshots(tmp_path: Path) -> None:
    """A revision with a slash in it is not followed."""
    _write(tmp_path / "hub" / "models--org--model" / "config.json", "outside")
    _cache(tmp_path, "abc")
    (tmp_path / "hub" / "models--org--model" / "refs" / "main").write_text("..", encoding="utf-8")
    (tmp_path / "hub" / "models--org--model" / "refs" / "main").write_text("../", encoding="utf-8")
    found = cached_config("org/model", {"HF_HOME": str(tmp_path)})
    assert found is not None
    assert found.parent.name == "abc"


def test_not_found_is_a_state_with_a_reason() -> None:
    """Nothing is raised when there is no config anywhere."""
    found = find_model_config(("org/model",), environment={"HOME": "/nonexistent"})
    assert not found.found
    assert found.origin == "none"
    assert "org/model" in found.reason


def test_a_broken_configured_file_is_a_state_too(tmp_path: Path) -> None:
    """What a person configured wrongly is said, and nothing else is taken in its place."""
    file = tmp_path / "config.json"
    file.write_text("{", encoding="utf-8")
    found = find_model_config(("org/model",), configured=file, environment={})
    assert (found.found, found.origin) == (False, "configured")
    assert "not JSON" in found.reason


def test_a_download_happens_only_if_there_is_a_way(tmp_path: Path) -> None:
    """The way to download is called last, and with the id."""
    asked: list[str] = []

    def download(model_id: str) -> bytes:
        asked.append(model_id)
        return b'{"model_type": "fetched"}'

    found = find_model_config(("org/model",), environment={"HOME": str(tmp_path)}, download=download)
    assert (found.origin, asked) == ("download", ["org/model"])


def test_a_failed_download_is_a_state(tmp_path: Path) -> None:
    """Whatever the download raises becomes the reason."""

    def download(model_id: str) -> bytes:
        raise OSError("no route to host")

    found = find_model_config(("org/model",), environment={"HOME": str(tmp_path)}, download=download)
    assert not found.found
    assert "no route to host" in found.reason


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"{", "not JSON"), (b"[1]", "JSON list"), (b"\xff\xfe", "not JSON"), (b" " * (MAX_BYTES + 1), "larger than")],
)
def test_what_is_no_config_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    """Each fault names the file and what is wrong with it."""
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        read_config_file(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    """The path and the way out are named."""
    with pytest.raises(InputError, match="no such file"):
        read_config_file(tmp_path / "nothing.json")
