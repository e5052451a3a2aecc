"""What the files say that stand before our pages, all read at one moment."""

import base64
import binascii
import hmac
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from exporter.errors import SettingsError
from exporter.guard.passwords import Passwords
from exporter.guard.tls import UnfitFilesError, context_of
from exporter.guard.web_config import TlsFiles, WebConfig, read_web_config

WEB_CONFIG = "VLLM_HEADROOM_WEB_CONFIG_FILE"
CERT = "VLLM_HEADROOM_PAGE_TLS_CERT_FILE"
KEY = "VLLM_HEADROOM_PAGE_TLS_KEY_FILE"
TOKEN = "VLLM_HEADROOM_PAGE_BEARER_TOKEN_FILE"  # noqa: S105 – a name
MAX_TOKEN_BYTES = 8_192

Stamp = tuple[int, int, int] | None
"""By which a file that was replaced is told from the one before; `None`: there is none."""


@dataclass(frozen=True, slots=True)
class GuardFiles:
    """The files that the settings name."""

    web_config: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token: Path | None = None

    @property
    def any(self) -> bool:
        """Whether anything is to be guarded."""
        return any((self.web_config, self.cert, self.key, self.token))


@dataclass(frozen=True, slots=True)
class Protection:
    """What holds until the files change: TLS, and what a request must bring."""

    context: ssl.SSLContext | None = None
    certificate_required: bool = False
    passwords: Passwords | None = None
    token: bytes | None = field(default=None, repr=False)

    @property
    def asks_credentials(self) -> bool:
        """Whether a request needs a password or the token."""
        return self.passwords is not None or self.token is not None

    @property
    def asks(self) -> bool:
        """Whether not everybody may read the pages."""
        return self.asks_credentials or self.certificate_required

    @property
    def challenges(self) -> str:
        """The value of WWW-Authenticate."""
        kinds = [("Bearer", self.token), ("Basic", self.passwords)]
        return ", ".join(f'{kind} realm="vllm-headroom"' for kind, held in kinds if held is not None)

    async def admits(self, authorization: str) -> bool:
        """Whether an Authorization header holds what is asked for. Raises `BusyError`."""
        kind, _, given = authorization.partition(" ")
        given = given.strip()
        if self.token is not None and kind.lower() == "bearer":
            return hmac.compare_digest(given.encode("utf-8", "replace"), self.token)
        if self.passwords is not None and kind.lower() == "basic":
            try:
                name, colon, password = base64.b64decode(given, validate=True).partition(b":")
                return bool(colon) and await self.passwords.right(name.decode(), password)
            except (binascii.Error, ValueError):
                return False
        return False


def read_protection(files: GuardFiles, executor: Executor, seen: dict[Path, Stamp]) -> Protection:
    """Read everything; `seen` is told of each file as it was before. Raises `SettingsError`, one line a fault."""
    config = WebConfig(None, {})
    if files.web_config is not None:
        seen[files.web_config] = stamp(files.web_config)
        config = read_web_config(files.web_config, WEB_CONFIG)
    tls = _one_tls(files, config)
    for path in () if tls is None else (tls.cert, tls.key, tls.client_ca):
        if path is not None:
            seen[path] = stamp(path)
    try:
        context = None if tls is None else context_of(tls)
    except UnfitFilesError as error:
        name, path = (CERT, files.cert) if config.tls is None else (WEB_CONFIG, files.web_config)
        raise SettingsError([f"{name}={str(path)!r}: {error}"]) from None
    token = None
    if files.token is not None:
        seen[files.token] = stamp(files.token)
        token = _token(files.token)
    passwords = Passwords(config.users, _bcrypt(files), executor) if config.users else None
    return Protection(context, tls is not None and tls.client_required, passwords, token)


def stamp(path: Path) -> Stamp:
    """What tells this file from the one that may replace it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _one_tls(files: GuardFiles, config: WebConfig) -> TlsFiles | None:
    if files.cert is None and files.key is None:
        return config.tls
    if config.tls is not None:
        raise SettingsError([f"{CERT}: {WEB_CONFIG} has a tls_server_config already; leave one of them out"])
    if files.cert is None or files.key is None:
        missing, given = (CERT, KEY) if files.cert is None else (KEY, CERT)
        raise SettingsError([f"{missing}: must be given where {given} is"])
    return TlsFiles(files.cert, files.key)


def _token(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            token = stream.read(MAX_TOKEN_BYTES + 1).strip()
    except OSError as error:
        raise SettingsError([f"{TOKEN}={str(file)!r}: cannot be read ({error.strerror})"]) from None
    printable = all(0x20 < byte < 0x7F for byte in token)
    if not token or len(token) > MAX_TOKEN_BYTES or not printable:
        rule = "must hold one token of printable ASCII characters without spaces: openssl rand -hex 32"
        raise SettingsError([f"{TOKEN}={str(file)!r}: {rule}"])
    return token


def _bcrypt(files: GuardFiles) -> Callable[[bytes, bytes], bool]:
    try:
        import bcrypt
    except ImportError:
        fault = f"{WEB_CONFIG}={str(files.web_config)!r}: users need bcrypt: pip install 'vllm-headroom[web]'"
        raise SettingsError([fault]) from None
    return bcrypt.checkpw
