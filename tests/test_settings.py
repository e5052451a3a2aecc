"""Settings: where values come from, who wins, and what a wrong one says."""

from pathlib import Path

import pytest

from exporter.errors import SettingsError
from exporter.settings import Settings, flag, load, unknown_variables, variable


def test_defaults_need_nothing() -> None:
    """Without any setting the daemon watches the local server from loopback once a second."""
    settings = load({})
    assert settings.vllm_url == ("http://127.0.0.1:8000",)
    assert settings.listen == "127.0.0.1:9488"
    assert settings.poll_interval_seconds == 1.0
    assert settings.body_limit_bytes == 8 * 1024 * 1024


@pytest.fixture
def everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """One setting given in a directory of files, a dotenv and the environment, each differently."""
    directory = tmp_path / "conf"
    directory.mkdir()
    (directory / "VLLM_HEADROOM_POLL_INTERVAL_SECONDS").write_text("2\n")
    dotenv = tmp_path / "headroom.env"
    dotenv.write_text("VLLM_HEADROOM_POLL_INTERVAL_SECONDS=3\n")
    monkeypatch.setenv("VLLM_HEADROOM_POLL_INTERVAL_SECONDS", "4")
    return {"config_dir": directory, "env_file": dotenv}


def test_a_flag_wins_over_everything(everywhere: dict[str, Path]) -> None:
    """A command-line flag beats environment, dotenv and directory."""
    assert load({**everywhere, "poll_interval_seconds": "5"}).poll_interval_seconds == 5


def test_the_environment_wins_over_files(everywhere: dict[str, Path]) -> None:
    """The environment beats dotenv and directory."""
    assert load(everywhere).poll_interval_seconds == 4


def test_the_dotenv_wins_over_the_directory(everywhere: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A dotenv file beats the directory of files."""
    monkeypatch.delenv("VLLM_HEADROOM_POLL_INTERVAL_SECONDS")
    assert load(everywhere).poll_interval_seconds == 3


def test_the_directory_wins_over_the_default(everywhere: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file named as the variable sets it."""
    monkeypatch.delenv("VLLM_HEADROOM_POLL_INTERVAL_SECONDS")
    assert load({"config_dir": everywhere["config_dir"]}).poll_interval_seconds == 2


@pytest.mark.parametrize("source", ["flag", "environment", "env_file", "config_dir"])
def test_the_model_config_can_be_given_everywhere(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one setting whose field has another name than its variable works from every source."""
    config = tmp_path / "config.json"
    config.write_text("{}")
    flags: dict[str, object] = {}
    if source == "flag":
        flags["architecture_file"] = str(config)
    elif source == "environment":
        monkeypatch.setenv("VLLM_HEADROOM_MODEL_CONFIG", str(config))
    elif source == "env_file":
        flags["env_file"] = tmp_path / "e"
        (tmp_path / "e").write_text(f"VLLM_HEADROOM_MODEL_CONFIG={config}\n")
    else:
        flags["config_dir"] = tmp_path / "d"
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "VLLM_HEADROOM_MODEL_CONFIG").write_text(str(config))
    assert load(flags).architecture_file == config


def test_a_model_config_may_appear_later() -> None:
    """The server may still be fetching the model: a path that is not there yet does not stop the start."""
    assert load({"architecture_file": "/not/yet/there"}).architecture_file == Path("/not/yet/there")


def test_several_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several base URLs, by comma or blank, lose their trailing slash and keep their root path."""
    monkeypatch.setenv("VLLM_HEADROOM_VLLM_URL", "http://a:1/,https://b/root/ http://[::1]:8000")
    assert load({}).vllm_url == ("http://a:1", "https://b/root", "http://[::1]:8000")


def test_an_empty_variable_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable, as templates leave them, means the default."""
    monkeypatch.setenv("VLLM_HEADROOM_MAX_NUM_SEQS", "")
    assert load({}).max_num_seqs is None


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("POLL_INTERVAL_SECONDS", "soon", "valid number"),
        ("POLL_INTERVAL_SECONDS", "0.01", "greater than or equal to 0.1"),
        ("VLLM_URL", "ftp://host", "http://HOST"),
        ("VLLM_URL", "http://user:secret@host", "must not carry a password"),
        ("VLLM_URL", "http://host:99999", "port between 0 and 65535"),
        ("LISTEN", "9488", "HOST:PORT"),
        ("LISTEN", "127.0.0.1:http", "HOST:PORT"),
        ("API_KEY_FILE", "/does/not/exist", "existing file"),
        ("LOG_FORMAT", "xml", "'text' or 'json'"),
        ("HORIZONS_SECONDS", "0", "between 1 and 600"),
        ("HORIZONS_SECONDS", "nan", "between 1 and 600"),
        ("POLL_INTERVAL_SECONDS", "nan", "less than or equal to 60"),
        ("GPUS", " , ", "at least one"),
        ("TLS_SKIP_VERIFY", "perhaps", "valid boolean"),
        ("WATERMARK", "1", "less than 1"),
    ],
)
def test_a_wrong_value_names_variable_value_and_rule(
    name: str, value: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wrong value gives one line with the variable, the value and what is allowed."""
    monkeypatch.setenv("VLLM_HEADROOM_" + name, value)
    with pytest.raises(SettingsError) as caught:
        load({})
    (line,) = caught.value.faults
    assert line.startswith(f"VLLM_HEADROOM_{name}=")
    assert rule in line
    assert "secret" not in line


def test_every_fault_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two wrong values give two lines."""
    monkeypatch.setenv("VLLM_HEADROOM_LISTEN", "x")
    monkeypatch.setenv("VLLM_HEADROOM_SEED", "-1")
    with pytest.raises(SettingsError) as caught:
        load({})
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize("name", ["env_file", "config_dir"])
def test_a_missing_place_is_a_fault(name: str) -> None:
    """A dotenv or directory that was named must be there."""
    with pytest.raises(SettingsError, match=f"VLLM_HEADROOM_{name.upper()}='/nowhere': must be an existing"):
        load({name: "/nowhere"})


def test_variables_and_flags_are_named_alike() -> None:
    """Each setting's flag is its variable in lower case with dashes."""
    assert (variable("vllm_url"), flag("vllm_url")) == ("VLLM_HEADROOM_VLLM_URL", "--vllm-url")
    assert (variable("architecture_file"), flag("architecture_file")) == (
        "VLLM_HEADROOM_MODEL_CONFIG",
        "--model-config",
    )
    assert all(Settings.model_fields[name].description for name in Settings.model_fields)


def test_misspelt_variables_are_told_apart_from_service_links() -> None:
    """An unknown variable with our prefix is named; what Kubernetes sets for a Service of our name is not."""
    environment = {
        "VLLM_HEADROOM_POL_INTERVAL": "1",
        "VLLM_HEADROOM_SEED": "1",
        "VLLM_HEADROOM_SERVICE_HOST": "10.0.0.1",
        "VLLM_HEADROOM_PORT_9488_TCP": "tcp://10.0.0.1:9488",
        "HOME": "/",
    }
    assert unknown_variables(environment) == ["VLLM_HEADROOM_POL_INTERVAL"]
