"""Where the architecture of the served model comes from: its config.json, looked for on disk.

In this order: the configured path; the `root` of `/v1/models` if it is a directory; the Hugging Face cache on disk
for that id; a download only if a way to download is given. Not found is a result, not an error: whatever needs no
architecture works without it.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from exporter.errors import InputError

MAX_BYTES = 8 * 2**20
Origin = Literal["configured", "root", "hf_cache", "download", "none"]
Download = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A config.json that was found, or why none was.

    `config` is `None` if there is none; `reason` is then a sentence for people. `path` is where it lies on disk.
    """

    origin: Origin
    reason: str
    config: Mapping[str, Any] | None = None
    path: Path | None = None

    @property
    def found(self) -> bool:
        """Whether there is a config."""
        return self.config is not None


def find_model_config(
    model_ids: tuple[str, ...],
    *,
    configured: Path | None = None,
    environment: Mapping[str, str],
    download: Download | None = None,
) -> ModelConfig:
    """Look for the config.json of the first of `model_ids` that has one.

    `model_ids` are the `root` and the id of `/v1/models`, as the server names them. `environment` is consulted for
    `HF_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME` and `HOME`. `download` maps a model id to the bytes of its file and may
    raise anything; leave it out to stay off the network.
    """
    if configured is not None:
        return _from_file(configured, "configured")
    for model_id in model_ids:
        directory = Path(model_id)
        if directory.is_absolute() and _is_file(directory / "config.json"):
            return _from_file(directory, "root")
    for model_id in model_ids:
        snapshot = cached_config(model_id, environment)
        if snapshot is not None:
            return _from_file(snapshot, "hf_cache")
    if download is not None:
        return _downloaded(model_ids, download)
    names = ", ".join(model_ids) or "a model that the server does not name"
    return ModelConfig("none", f"no config.json of {names} on this disk; set the model config path")


def read_config_file(path: Path) -> dict[str, Any]:
    """Parse a config.json, or the one in a directory. Raises `InputError` with one clear line."""
    file = path / "config.json" if path.is_dir() else path
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; pass the path of a model's config.json or of its directory") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); check its permissions") from None
    return parse_config(content, str(file))


def parse_config(content: bytes, name: str) -> dict[str, Any]:
    """Parse the bytes of a config.json called `name`. Raises `InputError` with one clear line."""
    if len(content) > MAX_BYTES:
        raise InputError(f"{name}: larger than {MAX_BYTES} bytes; a model's config.json is a few kilobytes")
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: not JSON ({error}); pass a model's config.json") from None
    if not isinstance(parsed, dict):
        raise InputError(f"{name}: holds a JSON {type(parsed).__name__}, not an object; pass a model's config.json")
    return parsed


def cached_config(model_id: str, environment: Mapping[str, str]) -> Path | None:
    """The newest config.json of `model_id` in the Hugging Face cache, the `main` revision first; `None` if absent."""
    if not model_id or model_id.startswith(("/", ".")) or model_id.count("/") > 1:
        return None
    home = _hub_directory(environment) / f"models--{model_id.replace('/', '--')}"
    try:
        revision = (home / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):  # also for a name that no file can have
        revision = ""
    if (
        revision
        and "/" not in revision
        and not revision.startswith(".")
        and _is_file(home / "snapshots" / revision / "config.json")
    ):
        return home / "snapshots" / revision / "config.json"
    try:
        files = [entry / "config.json" for entry in (home / "snapshots").iterdir()]
        present = [(file.stat().st_mtime, file) for file in files if file.is_file()]
    except (OSError, ValueError):
        return None
    return max(present)[1] if present else None


def _is_file(path: Path) -> bool:
    """Whether there is such a file; a server may name a model as no file can be named."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _hub_directory(environment: Mapping[str, str]) -> Path:
    if environment.get("HF_HUB_CACHE"):
        return Path(environment["HF_HUB_CACHE"])
    if environment.get("HF_HOME"):
        return Path(environment["HF_HOME"]) / "hub"
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME", "/root"), ".cache")  # noqa: PTH118
    return Path(cache) / "huggingface" / "hub"


def _from_file(path: Path, origin: Origin) -> ModelConfig:
    try:
        config = read_config_file(path)
    except InputError as error:
        return ModelConfig(origin, str(error))
    file = path / "config.json" if path.is_dir() else path
    return ModelConfig(origin, f"read from {file}", config, file)


def _downloaded(model_ids: tuple[str, ...], download: Download) -> ModelConfig:
    reason = "the server names no model"
    for model_id in model_ids:
        if not model_id or model_id.startswith("/"):
            continue
        try:
            return ModelConfig("download", f"downloaded for {model_id}", parse_config(download(model_id), model_id))
        except Exception as error:
            reason = f"the download for {model_id} failed: {error}"
    return ModelConfig("none", reason)
