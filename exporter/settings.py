"""Every knob, with its unit in its name.

Where a value comes from, the first that has it wins: command-line flag, environment variable
`VLLM_HEADROOM_<NAME>`, dotenv file (`--env-file`), directory of files (`--config-dir`, one file a setting),
default. A wrong value raises `SettingsError` with one line a fault.
"""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as SourceError

from exporter.errors import SettingsError
from exporter.sources.vllm_names import PREFIXES

PREFIX = "VLLM_HEADROOM_"
_MAX_FILE_BYTES = 2**20


def _split(value: object) -> object:
    """Accept "a,b c" where a list is wanted."""
    values = value.replace(",", " ").split() if isinstance(value, str) else value
    if not values:
        raise ValueError("must name at least one")
    return values


def _base_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]")
    if parts.username or parts.password:
        raise ValueError("must not carry a password; put the key into a file and name it in API_KEY_FILE")
    if parts.query or parts.fragment:
        raise ValueError("must not carry a query or fragment")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("must have a port between 0 and 65535") from None
    return value.rstrip("/")


def _listen(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("must be HOST:PORT with a port between 0 and 65535, as in 127.0.0.1:9488")
    return value


def _readable_file(value: Path) -> Path:
    if not value.is_file():
        raise ValueError("must be an existing file")
    if not os.access(value, os.R_OK):
        raise ValueError("must be readable by this user")
    return value


def _horizons(value: tuple[float, ...]) -> tuple[float, ...]:
    if any(not 1 <= seconds <= 600 for seconds in value):
        raise ValueError("must be numbers of seconds between 1 and 600")
    return tuple(sorted(set(value)))


def _prefix(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,63}", value):
        raise ValueError("must be beginnings of metric names, as in vllm: or ray_vllm_")
    return value


Url = Annotated[str, AfterValidator(_base_url)]
Listen = Annotated[str, AfterValidator(_listen)]
ReadableFile = Annotated[Path, AfterValidator(_readable_file)]
MetricPrefix = Annotated[str, AfterValidator(_prefix)]
Horizons = Annotated[tuple[float, ...], NoDecode, BeforeValidator(_split), AfterValidator(_horizons)]


class Settings(BaseSettings):
    """The daemon's settings, validated once at the start."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        env_ignore_empty=True,
        env_file_encoding="utf-8",
    )

    vllm_url: Annotated[tuple[Url, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=("http://127.0.0.1:8000",), max_length=16, description="base URL(s) of the vLLM server(s)"
    )
    listen: Listen = Field(default="127.0.0.1:9488", description="HOST:PORT to serve on")
    web_config_file: ReadableFile | None = Field(
        default=None, description="TLS and users of our own page, in Prometheus's web.config form"
    )
    page_tls_cert_file: ReadableFile | None = Field(
        default=None, description="certificate of our own page, with its chain; serves HTTPS"
    )
    page_tls_key_file: ReadableFile | None = Field(default=None, description="the key of that certificate")
    page_bearer_token_file: ReadableFile | None = Field(
        default=None, description="file with the bearer token that our own page asks for"
    )
    poll_interval_seconds: float = Field(default=1.0, ge=0.1, le=60, description="seconds between readings")
    vllm_timeout_seconds: float = Field(default=5.0, gt=0, le=60, description="longest wait for one page of vLLM")
    body_limit_bytes: int = Field(
        default=8 * 2**20, ge=65536, le=256 * 2**20, description="largest page of vLLM that is read"
    )
    metric_prefixes: Annotated[tuple[MetricPrefix, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=PREFIXES, max_length=16, description="what vLLM's metric names begin with, the preferred first"
    )
    api_key_file: ReadableFile | None = Field(default=None, description="file with the bearer key for vLLM's page")
    tls_ca_file: ReadableFile | None = Field(default=None, description="CA bundle that signs vLLM's certificate")
    tls_skip_verify: bool = Field(default=False, description="accept any certificate from vLLM")
    architecture_file: Path | None = Field(
        default=None,
        validation_alias=PREFIX + "MODEL_CONFIG",
        description="the model's config.json, or the directory that holds it; it may appear later",
    )
    model_download: bool = Field(default=False, description="fetch config.json from the model hub when no disk has it")
    hf_home: Path | None = Field(default=None, description="Hugging Face cache directory; default: HF_HOME")
    tensor_parallel_size: int = Field(default=1, ge=1, le=1024, description="vLLM's --tensor-parallel-size")
    pipeline_parallel_size: int = Field(default=1, ge=1, le=1024, description="vLLM's --pipeline-parallel-size")
    max_num_seqs: int | None = Field(
        default=None, ge=1, le=10**9, description="vLLM's --max-num-seqs; inferred when not given"
    )
    max_num_batched_tokens: int | None = Field(
        default=None, ge=1, le=10**9, description="vLLM's --max-num-batched-tokens; inferred when not given"
    )
    max_model_len: int | None = Field(
        default=None, ge=1, le=10**9, description="vLLM's --max-model-len; default: as the server says"
    )
    max_lora_rank: int | None = Field(
        default=None, ge=1, le=4096, description="vLLM's --max-lora-rank, where adapters are served"
    )
    watermark: float = Field(default=0.0, ge=0, lt=1, description="share of the KV pool vLLM keeps free at admission")
    horizons_seconds: Horizons = Field(
        default=(15.0, 30.0, 60.0, 120.0), description="forecast horizons in seconds; the alarm speaks of 60"
    )
    seed: int = Field(default=0, ge=0, description="seed of the forecast's random numbers")
    gpus: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=("auto",), description="auto, none, or the indices or UUIDs of this server's GPUs"
    )
    host: Literal["auto", "none"] = Field(default="auto", description="read the container's memory: auto or none")
    proc_dir: Path = Field(default=Path("/proc"), description="where the processes of the server are seen")
    cgroup_dir: Path = Field(
        default=Path("/sys/fs/cgroup"), description="control groups; mount the host's to see every container's"
    )
    pod_resources_socket: Path | None = Field(default=None, description="the kubelet's pod-resources socket")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least level to log")
    log_format: Literal["text", "json"] = Field(default="text", description="form of a log line")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 – the signature is pydantic-settings' own
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, environment, dotenv, directory of files: the order of precedence."""
        return init_settings, env_settings, dotenv_settings, file_secret_settings


def variable(field: str) -> str:
    """The environment variable of a field of `Settings`."""
    alias = Settings.model_fields[field].validation_alias
    return alias if isinstance(alias, str) else PREFIX + field.upper()


def flag(field: str) -> str:
    """The command-line flag of a field of `Settings`."""
    return "--" + variable(field).removeprefix(PREFIX).lower().replace("_", "-")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Give `parser` one flag for every setting, and the two places more settings may come from."""
    for name, field in Settings.model_fields.items():
        text = f"{field.description} [{variable(name)}]".replace("%", "%%")
        if field.annotation is bool:
            parser.add_argument(flag(name), dest=name, nargs="?", const="true", metavar="BOOL", help=text)
        else:
            parser.add_argument(flag(name), dest=name, metavar="VALUE", help=text)
    parser.add_argument("--env-file", metavar="FILE", help=f"dotenv file with settings [{PREFIX}ENV_FILE]")
    parser.add_argument("--config-dir", metavar="DIR", help=f"directory, one file a setting [{PREFIX}CONFIG_DIR]")


def load(flags: Mapping[str, Any]) -> Settings:
    """Settings from flags (a parsed namespace's dict), environment, dotenv and directory of files.

    Raises `SettingsError` with one line for every wrong value: the variable, the value, what is allowed.
    """
    env_file = _place(flags, "env_file", Path.is_file, "file")
    config_dir = _place(flags, "config_dir", Path.is_dir, "directory")
    given = {name: flags[name] for name in Settings.model_fields if flags.get(name) is not None}
    try:
        return Settings(**cast("Any", {"_env_file": env_file, "_secrets_dir": config_dir} | _by_alias(given)))
    except ValidationError as error:
        raise SettingsError([_fault(dict(fault)) for fault in error.errors()]) from None
    except (OSError, SourceError) as error:
        raise SettingsError([f"{PREFIX}CONFIG_DIR={_shown(config_dir)}: {_one_line(error)}"]) from None


def _by_alias(given: Mapping[str, Any]) -> dict[str, Any]:
    """Name each value as the environment would, so that a flag replaces the same key of every other source."""
    return {variable(n) if Settings.model_fields[n].validation_alias else n: v for n, v in given.items()}


def _place(flags: Mapping[str, Any], name: str, exists: Callable[[Path], bool], kind: str) -> Path | None:
    value = flags.get(name) or os.environ.get(PREFIX + name.upper())
    if not value:
        return None
    path = Path(value)
    if not exists(path):
        raise SettingsError([f"{PREFIX}{name.upper()}={_shown(value)}: must be an existing {kind}"])
    try:
        for file in [path] if kind == "file" else path.iterdir():
            if file == path or (file.name.upper().startswith(PREFIX) and file.is_file()):
                _check_text(f"{PREFIX}{name.upper()}={_shown(file)}", file)
    except OSError as error:
        raise SettingsError([f"{PREFIX}{name.upper()}={_shown(value)}: cannot be read ({error.strerror})"]) from None
    return path


def _check_text(place: str, file: Path) -> None:
    """Refuse a file of settings that is no text, before anything else trips over it."""
    with file.open("rb") as stream:
        content = stream.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise SettingsError([f"{place}: must be a file of settings, of at most {_MAX_FILE_BYTES} bytes"])
    try:
        content.decode()
    except UnicodeDecodeError:
        raise SettingsError([f"{place}: must be text in UTF-8"]) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _fault(error: Mapping[str, Any]) -> str:
    """One line: variable, value, rule."""
    location = error["loc"]
    name = str(location[0]) if location else "settings"
    name = name if name.startswith(PREFIX) else variable(name) if name in Settings.model_fields else PREFIX + name
    rule = str(error["msg"]).removeprefix("Value error, ")
    rule = rule[:1].lower() + rule[1:]
    return f"{name}={_shown(error['input'])}: {rule}"


def _shown(value: object) -> str:
    """The value as a person may see it: bounded, and without what stands before an @, which may be a password."""
    text = re.sub(r"[^/\s'\"]*@", "***@", str(value))
    return repr(text if len(text) <= 80 else text[:79] + "…")


def unknown_variables(environment: Mapping[str, str]) -> Sequence[str]:
    """Variables with our prefix that mean nothing here, most likely misspelt.

    Kubernetes gives every pod of a namespace `<SERVICE>_PORT…` and `<SERVICE>_SERVICE_…` of a Service named
    vllm-headroom; those are not ours.
    """
    known = {variable(name) for name in Settings.model_fields} | {PREFIX + "ENV_FILE", PREFIX + "CONFIG_DIR"}
    mine = (name for name in environment if name.startswith(PREFIX))
    return [n for n in mine if n not in known and not n.removeprefix(PREFIX).startswith(("PORT", "SERVICE_"))]
