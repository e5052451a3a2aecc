"""The settings: environment, flags, a dotenv file and a directory of files at once.

An input has four parts with a line `---` between: lines `NAME=VALUE` of the environment, lines `name=value` of flags,
the dotenv file, lines `NAME=VALUE` of which each becomes a file.
"""

import os
import tempfile
from pathlib import Path
from unittest import mock

from bench.fuzz.target import Target, fit_to_be_shown
from exporter.errors import SettingsError
from exporter.settings import PREFIX, Settings, load, unknown_variables, variable

CUT = b"\n---\n"
VARIABLES = tuple(variable(name) for name in Settings.model_fields)
VALUES = (
    *("http://127.0.0.1:8000", "https://[::1]:8443/root", "http://user:secret@host", "127.0.0.1:9488", ":0", "[::]:1"),
    *(
        "1",
        "0.1",
        "-1",
        "1e999",
        "nan",
        "true",
        "auto",
        "none",
        "15,30 60",
        "/dev/null",
        "/",
        "vllm:",
        "ray_vllm_",
        "²",
    ),
)
SECRET = "secret"


def check(data: bytes) -> None:
    """There are settings, or one line for every fault; none repeats a password."""
    environment, flags, dotenv, files = (data.split(CUT, 3) + [b""] * 3)[:4]
    with tempfile.TemporaryDirectory() as directory:
        env_file, config_dir = Path(directory, "env"), Path(directory, "conf")
        env_file.write_bytes(dotenv)
        config_dir.mkdir()
        for name, value in pairs(files):
            if name and "/" not in name and name not in (".", "..") and len(os.fsencode(name)) < 200:
                (config_dir / name).write_bytes(os.fsencode(value))
        places: dict[str, object] = {"env_file": str(env_file), "config_dir": str(config_dir)}
        given = {name: value for name, value in pairs(environment) if name}
        with mock.patch.dict(os.environ, given, clear=True):
            unknown_variables(os.environ)
            try:
                load(dict(pairs(flags)) | places)
            except SettingsError as error:
                for fault in error.faults:
                    assert "\n" not in fault
                    fit_to_be_shown(SettingsError([fault]))
                    assert f":{SECRET}@" not in fault


def pairs(text: bytes) -> list[tuple[str, str]]:
    """Names and values, one pair a line, as the system hands them over."""
    lines = (os.fsdecode(line) for line in text.replace(b"\0", b"").splitlines())
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def seeds() -> list[bytes]:
    """Every setting by each of the four ways, with values that fit one or another."""
    found = []
    for at, name in enumerate(VARIABLES):
        line = f"{name}={VALUES[at % len(VALUES)]}".encode()
        field = name.removeprefix(PREFIX).lower().encode()
        flag = field + b"=" + VALUES[(at + 1) % len(VALUES)].encode()
        found.append(CUT.join((line, flag, line, line)))
    return [*found, b"", CUT.join([b"VLLM_HEADROOM_API_KEY_FILE=/dev/null"] * 4)]


TARGET = Target(
    name="settings",
    check=check,
    seeds=seeds,
    tokens=(
        *(CUT, b"=", b'"', b"'", b"${", b"#", b"export "),
        *(f"\n{name}=".encode() for name in VARIABLES),
        *(value.encode() for value in VALUES),
    ),
    allowed=(SettingsError,),
    longest=2048,
)
