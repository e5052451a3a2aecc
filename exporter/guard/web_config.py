"""The web config: the file form in which Prometheus and its exporters are told of TLS and users, read strictly.

What that form allows and this server does not do is refused by its name, with the reason: a protection that is asked
for and silently missing is worse than none.
"""

import re
import ssl
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.errors import SettingsError

LIMIT_BYTES = 1024 * 1024
MOST_ROUNDS = 14
"""Of bcrypt, as a power of two: at 14 one password costs about a second of CPU."""

_TOP = {
    "tls_server_config": "",
    "basic_auth_users": "",
    "http_server_config": "",
    "rate_limit": "there is no rate limit here; connections, their times and password checks are bounded anyway",
}
_TLS = {
    "cert_file": "",
    "key_file": "",
    "client_ca_file": "",
    "client_auth_type": "",
    "min_version": "",
    "max_version": "",
    "cert": "a certificate is read from a file only; put it into cert_file",
    "key": "a key is read from a file only; put it into key_file",
    "client_ca": "a CA is read from a file only; put it into client_ca_file",
    "client_allowed_sans": "every certificate of the CA is accepted; let a CA of its own sign those of your scrapers",
    "cipher_suites": "OpenSSL's own choice is used; min_version: TLS13 leaves out every older suite",
    "prefer_server_cipher_suites": "OpenSSL's own choice is used; leave it out",
    "curve_preferences": "OpenSSL's own choice is used; leave it out",
}
_HTTP = {
    "http2": "",
    "headers": "the page sends headers of its own, which these would weaken; leave them out",
}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_OLD_VERSIONS = ("TLS10", "TLS11")
_NO_CLIENT = "NoClientCert"
_UNVERIFIED = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
_VERIFIED = {"VerifyClientCertIfGiven": False, "RequireAndVerifyClientCert": True}
_HASH = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where certificate and key lie, and what is asked of clients."""

    cert: Path
    key: Path
    client_ca: Path | None = None
    """Who signs the certificates of clients; a client that shows another is not talked to."""
    client_required: bool = False
    """Whether the pages are only for clients that show one."""
    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    maximum: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What a file says: TLS or none, and users with the bcrypt hashes of their passwords."""

    tls: TlsFiles | None
    users: Mapping[str, bytes] = field(repr=False)


def read_web_config(file: Path, variable: str) -> WebConfig:
    """Read `file`, which the setting `variable` names. Raises `SettingsError`, one line a fault; never quotes a secret.

    As in Prometheus, relative paths in it start at its own directory.
    """
    name = f"{variable}={str(file)!r}"
    try:
        with file.open("rb") as stream:
            content = stream.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise SettingsError([f"{name}: cannot be read ({error.strerror})"]) from None
    if len(content) > LIMIT_BYTES:
        raise SettingsError([f"{name}: larger than {LIMIT_BYTES} bytes; a web config is a few lines"])
    reader = _Reader(file.parent)
    config = reader.config(_yaml(content, name))
    if not reader.faults and config.tls is None and not config.users:
        reader.faults.append("must have tls_server_config or basic_auth_users; to protect nothing, do not name a file")
    if reader.faults:
        raise SettingsError([f"{name}: {fault}" for fault in reader.faults])
    return config


def _yaml(content: bytes, name: str) -> Any:
    """The file's value: mappings, lists, texts; a key that stands there twice is refused, as Prometheus does."""
    try:
        import yaml
    except ImportError:
        fault = f"{name}: needs PyYAML and bcrypt: pip install 'vllm-headroom[web]'"
        raise SettingsError([fault]) from None

    class Loader(yaml.BaseLoader):
        """Every scalar is a text, as in Prometheus: a user may be called `no` or 123."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: ARG002
            found: dict[Hashable, Any] = super().construct_mapping(node, deep=True)
            if len(found) < len(node.value):
                raise yaml.constructor.ConstructorError(None, None, None, node.start_mark)
            return found

    try:
        return yaml.load(content, Loader)  # noqa: S506 – its base makes nothing but texts, lists and mappings
    except yaml.MarkedYAMLError as error:
        # Only the place is told: YAML's own messages quote the file, in which hashes stand.
        mark = error.problem_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise SettingsError([f"{name}: must be YAML without repeated keys{place}"]) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise SettingsError([f"{name}: must be YAML"]) from None


class _Reader:
    """Turns the file's value into a `WebConfig` and gathers what is wrong with it."""

    def __init__(self, directory: Path) -> None:
        self.faults: list[str] = []
        self._directory = directory

    def config(self, value: Any) -> WebConfig:
        top = self._section("", value, _TOP)
        tls = self._tls(top["tls_server_config"]) if top.get("tls_server_config") else None
        http = self._section("http_server_config", top.get("http_server_config"), _HTTP)
        if http.get("http2", "false") not in ("true", "false"):
            self.faults.append("http_server_config.http2: must be true or false; HTTP/1.1 is spoken either way")
        return WebConfig(tls, self._users(top.get("basic_auth_users")))

    def _section(self, name: str, value: Any, known: Mapping[str, str]) -> dict[str, Any]:
        """The keys of a mapping that are served; the others are faults."""
        if value in (None, ""):
            return {}
        if not isinstance(value, dict):
            self.faults.append(f"{name or 'the file'}: must be a mapping of {_names(known)}")
            return {}
        dot = f"{name}." if name else ""
        for key in value:
            if key not in known:
                self.faults.append(f"{dot}{_shown(key)}: must be one of {_names(known)}")
            elif known[key]:
                self.faults.append(f"{dot}{key}: is not served: {known[key]}")
        return {key: item for key, item in value.items() if known.get(key) == ""}

    def _tls(self, value: Any) -> TlsFiles | None:
        section = "tls_server_config"
        before = len(self.faults)
        given = self._section(section, value, _TLS)
        cert, key, ca = (self._path(section, given, name) for name in ("cert_file", "key_file", "client_ca_file"))
        for name in ("cert_file", "key_file"):
            if name not in given:
                self.faults.append(f"{section}.{name}: must name a PEM file")
        auth = given.get("client_auth_type") or _NO_CLIENT
        self._client_fault(auth, ca)
        minimum = self._version(given, "min_version", ssl.TLSVersion.TLSv1_2)
        maximum = self._version(given, "max_version", ssl.TLSVersion.MAXIMUM_SUPPORTED)
        if minimum == ssl.TLSVersion.TLSv1_3 and maximum == ssl.TLSVersion.TLSv1_2:
            self.faults.append(f"{section}.max_version: must not be below min_version")
        if cert is None or key is None or len(self.faults) > before:
            return None
        return TlsFiles(cert, key, ca, _VERIFIED.get(auth, False), minimum, maximum)

    def _client_fault(self, auth: Any, ca: Path | None) -> None:
        name = "tls_server_config.client_auth_type"
        allowed = ", ".join((_NO_CLIENT, *_VERIFIED))
        if auth in _UNVERIFIED:
            why = "is not served: it would believe any certificate; RequireAndVerifyClientCert verifies it"
            self.faults.append(f"{name}: {auth} {why}")
        elif auth != _NO_CLIENT and auth not in _VERIFIED:
            self.faults.append(f"{name}: must be one of {allowed}")
        elif auth in _VERIFIED and ca is None:
            self.faults.append(f"{name}: {auth} needs client_ca_file, which says whom to believe")
        elif auth == _NO_CLIENT and ca is not None:
            self.faults.append("tls_server_config.client_ca_file: needs client_auth_type, or nobody is asked")

    def _path(self, section: str, given: Mapping[str, Any], name: str) -> Path | None:
        value = given.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value or "\0" in value:
            self.faults.append(f"{section}.{name}: must be the path of a PEM file")
            return None
        return self._directory / value

    def _version(self, given: Mapping[str, Any], name: str, default: ssl.TLSVersion) -> ssl.TLSVersion:
        value = given.get(name)
        if value is None or value in _VERSIONS:
            return default if value is None else _VERSIONS[value]
        old = "is not served: it has been broken for years; " if value in _OLD_VERSIONS else ""
        self.faults.append(f"tls_server_config.{name}: {old}must be TLS12 or TLS13")
        return default

    def _users(self, value: Any) -> dict[str, bytes]:
        section = "basic_auth_users"
        if value in (None, ""):
            return {}
        if not isinstance(value, dict):
            self.faults.append(f"{section}: must be a mapping of names to bcrypt hashes")
            return {}
        for name, hashed in value.items():
            self.faults += [f"{section}.{_shown(name)}: {fault}" for fault in _user_faults(name, hashed)]
        return {name: str(hashed).encode() for name, hashed in value.items()}


def _user_faults(name: str, hashed: Any) -> list[str]:
    found = _HASH.fullmatch(hashed) if isinstance(hashed, str) else None
    faults = ["a name must not hold a colon, which ends it in a request"] if ":" in name else []
    if found is None:
        return [*faults, "must be a bcrypt hash, as `htpasswd -nBC 10 NAME` prints it after the colon"]
    if not 4 <= int(found[1]) <= MOST_ROUNDS:
        faults.append(f"must have a cost from 4 to {MOST_ROUNDS}: each password that is tried costs that much CPU")
    return faults


def _names(known: Mapping[str, str]) -> str:
    return ", ".join(key for key, refusal in known.items() if not refusal)


def _shown(key: object) -> str:
    """A key of the file as a person may see it."""
    text = ascii(str(key))[1:-1]
    return text if len(text) <= 40 else text[:39] + "…"
