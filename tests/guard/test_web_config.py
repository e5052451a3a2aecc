"""The web config: what is read, and what is refused by name."""

import builtins
import ssl
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import SettingsError
from exporter.guard.web_config import WebConfig, read_web_config
from tests.guard.files import TLS, hashed, users

NAME = "VLLM_HEADROOM_WEB_CONFIG_FILE"


def read(directory: Path, text: str | bytes) -> WebConfig:
    file = directory / "web.yml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_web_config(file, NAME)


def faults(directory: Path, text: str | bytes) -> list[str]:
    with pytest.raises(SettingsError) as error:
        read(directory, text)
    return error.value.faults


def test_everything_that_is_served_is_read(tmp_path: Path) -> None:
    """Every key that this server honours arrives, with relative paths beside the file."""
    more = "  client_ca_file: /etc/ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n  min_version: TLS13\n"
    found = read(tmp_path, TLS + more + "  max_version: TLS13\n" + users(alice="a", bob="b"))
    assert found.tls is not None
    assert (found.tls.cert, found.tls.key) == (tmp_path / "tls.crt", tmp_path / "tls.key")
    assert (found.tls.client_ca, found.tls.client_required) == (Path("/etc/ca.pem"), True)
    assert (found.tls.minimum, found.tls.maximum) == (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)
    assert found.users == {"alice": hashed("a").encode(), "bob": hashed("b").encode()}


def test_defaults_are_those_of_prometheus(tmp_path: Path) -> None:
    """Without more than certificate and key: TLS 1.2 and newer, and clients need no certificate."""
    tls = read(tmp_path, TLS).tls
    assert tls is not None
    assert (tls.minimum, tls.client_ca, tls.client_required) == (ssl.TLSVersion.TLSv1_2, None, False)


@pytest.mark.parametrize("name", ["no", "123", "null", "user@example.com", "ü"])
def test_any_name_is_a_text(tmp_path: Path, name: str) -> None:
    """A user may be called what YAML would take for a number or a truth."""
    assert list(read(tmp_path, users(**{name: "secret"})).users) == [name]


def test_a_file_shared_with_other_exporters_is_read(tmp_path: Path) -> None:
    """The switch for HTTP/2, which is a matter between client and server, is let through."""
    assert read(tmp_path, TLS + "http_server_config:\n  http2: true\n").tls is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "must have tls_server_config or basic_auth_users"),
        ("", "must have tls_server_config or basic_auth_users"),
        ("- a", "must be a mapping of tls_server_config"),
        ("tls_server_configs: {}", "tls_server_configs: must be one of"),
        ("rate_limit: {interval: 1s}", "rate_limit: is not served: "),
        ("http_server_config: {headers: {X-Frame-Options: deny}}", "headers: is not served: the page sends headers"),
        ("http_server_config: {http2: maybe}", "http2: must be true or false"),
        ("tls_server_config: {cert_file: a}", "tls_server_config.key_file: must name a PEM file"),
        ("tls_server_config: {cert_file: [a], key_file: b}", "cert_file: must be the path of a PEM file"),
        ("tls_server_config: {cert_file: '', key_file: b}", "cert_file: must be the path of a PEM file"),
        (TLS + "  cert: 'PEM'", "tls_server_config.cert: is not served: "),
        (TLS + "  client_allowed_sans: [a]", "client_allowed_sans: is not served: every certificate of the CA"),
        (TLS + "  cipher_suites: [a]", "cipher_suites: is not served: "),
        (TLS + "  curve_preferences: [a]", "curve_preferences: is not served: "),
        (TLS + "  prefer_server_cipher_suites: true", "prefer_server_cipher_suites: is not served: "),
        (TLS + "  min_version: TLS11", "min_version: is not served: it has been broken for years; must be TLS12"),
        (TLS + "  min_version: '1.2'", "min_version: must be TLS12 or TLS13"),
        (TLS + "  min_version: TLS13\n  max_version: TLS12", "max_version: must not be below min_version"),
        (TLS + "  client_auth_type: RequireAnyClientCert", "RequireAnyClientCert is not served: it would believe any"),
        (TLS + "  client_auth_type: Require", "client_auth_type: must be one of NoClientCert, VerifyClientCertIfGiven"),
        (TLS + "  client_auth_type: VerifyClientCertIfGiven", "VerifyClientCertIfGiven needs client_ca_file"),
        (TLS + "  client_ca_file: ca.pem", "client_ca_file: needs client_auth_type, or nobody is asked"),
        ("basic_auth_users: [alice]", "basic_auth_users: must be a mapping"),
        ("basic_auth_users: {alice: [a]}", "basic_auth_users.alice: must be a bcrypt hash"),
        ("basic_auth_users: {alice: " + hashed("a").replace("$04$", "$17$") + "}", "must have a cost from 4 to 14"),
        ("basic_auth_users: {'a:b': " + hashed("a") + "}", "basic_auth_users.a:b: a name must not hold a colon"),
        ("tls_server_config: {\n", "must be YAML without repeated keys (line 2, column 1)"),
        (users(alice="a") + users(bob="b"), "must be YAML without repeated keys (line 1, column 1)"),
        (b"\xff\xfe\xff", "must be YAML"),
        ("&a [" * 5000, "must be YAML"),
        ("a" * (1024 * 1024 + 1), "larger than 1048576 bytes"),
    ],
)
def test_a_fault_is_one_line_with_file_key_and_rule(tmp_path: Path, text: str | bytes, told: str) -> None:
    """Whatever is wrong is told in a line that names the setting, the file, the key and the rule."""
    found = faults(tmp_path, text)
    assert any(told in fault for fault in found), found
    assert all(fault.startswith(f"{NAME}='{tmp_path}/web.yml': ") and "\n" not in fault for fault in found)


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    """Two faults are two lines, so that a file is mended in one go."""
    assert len(faults(tmp_path, TLS + "  min_version: x\n  max_version: y\n")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "basic_auth_users: {alice: hunter2hunter2}",
        "basic_auth_users:\n  alice: hunter2hunter2: x\n",
        "basic_auth_users:\n  alice: *hunter2hunter2\n",
        'basic_auth_users:\n  alice: "hunter2hunter2\n',
        "basic_auth_users: {alice: %hunter2hunter2}",
    ],
)
def test_a_fault_never_quotes_a_secret(tmp_path: Path, text: str) -> None:
    """What stands where a hash should, which may be a password, is in no message."""
    assert "hunter2" not in "\n".join(faults(tmp_path, text))
    assert "hunter2" not in repr(WebConfig(None, {"alice": b"hunter2hunter2"}))


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    """The file itself may be gone when it is read anew."""
    with pytest.raises(SettingsError, match=rf"{NAME}='.*gone': cannot be read \(No such file"):
        read_web_config(tmp_path / "gone", NAME)


def test_without_pyyaml_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the extra says what to install."""
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install 'vllm-headroom[web]'" in faults(tmp_path, TLS)[0]
