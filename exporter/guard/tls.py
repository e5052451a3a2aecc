"""What a connection is secured with, made of files."""

import ssl
from pathlib import Path

from exporter.guard.web_config import TlsFiles


class UnfitFilesError(Exception):
    """Certificate, key or CA cannot be used; the message is one line that names the file and the rule."""


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """The server side of TLS with these files. Raises `UnfitFilesError`.

    A client certificate is verified where one is shown, and whether one is needed is asked of each request: the probes
    of a kubelet have none.
    """
    for name, path in (("certificate", files.cert), ("key", files.key), ("client CA", files.client_ca)):
        if path is not None:
            _readable(name, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = files.minimum
    context.maximum_version = files.maximum
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _load_pair(context, files)
    if files.client_ca is not None:
        try:
            context.load_verify_locations(cafile=files.client_ca)
        except ssl.SSLError:
            raise UnfitFilesError(f"client CA {str(files.client_ca)!r}: must be a PEM bundle of certificates") from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _readable(name: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise UnfitFilesError(f"{name} {str(path)!r}: cannot be read ({error.strerror})") from None


def _load_pair(context: ssl.SSLContext, files: TlsFiles) -> None:
    encrypted: list[bool] = []

    def no_password() -> str:  # without one OpenSSL would ask for it on the terminal
        encrypted.append(True)
        return ""

    try:
        context.load_cert_chain(files.cert, files.key, no_password)
    except (ssl.SSLError, ValueError) as error:
        where = f"certificate {str(files.cert)!r}, key {str(files.key)!r}"
        if encrypted:
            rule = "the key must not be encrypted: openssl pkey -in KEY -out PLAIN"
        elif getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            rule = "the key must be the certificate's own, and the certificate must stand before its chain"
        else:
            rule = "must be PEM files, the certificate with its chain and its private key"
        raise UnfitFilesError(f"{where}: {rule}") from None
