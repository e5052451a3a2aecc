"""Certificates, keys, hashes and tokens in a directory, as an administrator lays them there."""

import ssl
from functools import cache
from pathlib import Path

import bcrypt
import trustme

AUTHORITY = trustme.CA()
CLIENTS = trustme.CA()


class Files:
    """The files of one server in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cert, self.key = directory / "tls.crt", directory / "tls.key"
        self.ca = directory / "clients.pem"
        self.token = directory / "token"
        self.web_config = directory / "web.yml"
        CLIENTS.cert_pem.write_to_path(self.ca)
        self.renew()

    def renew(self) -> None:
        """A new certificate with its key, as cert-manager puts them there: each file is replaced whole."""
        issued = AUTHORITY.issue_cert("127.0.0.1")
        replace(self.cert, issued.cert_chain_pems[0].bytes())
        replace(self.key, issued.private_key_pem.bytes())

    def config(self, text: str) -> Path:
        """A web config that says `text`."""
        replace(self.web_config, text.encode())
        return self.web_config


def replace(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


TLS = "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n"


@cache
def hashed(password: str) -> str:
    """A bcrypt hash as `htpasswd -B` prints it, of the least cost."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")


def users(**passwords: str) -> str:
    """The users of a web config."""
    return "basic_auth_users:\n" + "".join(f"  {name}: {hashed(word)}\n" for name, word in passwords.items())


def trusting(client: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """What a client trusts, and what it shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(context)
    if client is not None:
        client.configure_cert(context)
    return context
