"""The page over TLS."""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from exporter.errors import SettingsError
from tests.support.expositions import TWO_ENGINES, exposition
from tests.support.pages import (
    PageServer,
    answer,
)
from tests.support.sources import fault_of, source_of

PAGE = exposition(TWO_ENGINES)


class TestTLS:
    authority = trustme.CA()

    @pytest.fixture
    def server(self) -> Iterator[PageServer]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1").configure_cert(context)
        with PageServer(answer(PAGE), tls=context) as server:
            yield server

    @pytest.fixture
    def bundle(self, tmp_path: Path) -> Path:
        self.authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        return tmp_path / "ca.pem"

    def test_a_certificate_of_the_given_authority_is_trusted(self, server: PageServer, bundle: Path) -> None:
        """With the right CA file the page is read over TLS."""
        source = source_of(server.url, tls_ca_file=bundle)
        assert source.read().engines
        source.close()

    def test_an_unknown_certificate_is_refused(self, server: PageServer) -> None:
        """Without that authority it is a fault of TLS, which names the reason."""
        source = source_of(server.url)
        error = fault_of(source)
        assert error.reason == "tls"
        assert "unable to get local issuer certificate" in str(error)
        source.close()

    def test_a_certificate_for_another_host_is_refused(self, server: PageServer, bundle: Path) -> None:
        """The name in the certificate must be the host's."""
        source = source_of(f"https://localhost:{server.port}", tls_ca_file=bundle)
        assert fault_of(source).reason == "tls"
        source.close()

    def test_an_expired_certificate_is_told(self, bundle: Path) -> None:
        """A certificate past its day is a fault of TLS that says so."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        past = datetime.now(UTC) - timedelta(days=1)
        self.authority.issue_cert("127.0.0.1", not_before=past - timedelta(days=1), not_after=past).configure_cert(
            context
        )
        with PageServer(answer(PAGE), tls=context) as server:
            source = source_of(server.url, tls_ca_file=bundle)
            error = fault_of(source)
            assert error.reason == "tls"
            assert "certificate has expired" in str(error)
            source.close()

    def test_verification_can_be_switched_off(self, server: PageServer) -> None:
        """With skip-verify any certificate will do."""
        source = source_of(server.url, tls_skip_verify=True)
        assert source.read().engines
        source.close()

    def test_a_server_without_tls_is_a_fault_of_tls(self) -> None:
        """Https against a plain server is told as such."""
        with PageServer(answer(PAGE)) as plain:
            source = source_of(plain.url.replace("http:", "https:"))
            assert fault_of(source).reason == "tls"
            source.close()

    @pytest.mark.parametrize("content", [None, "no certificate"])
    def test_a_useless_ca_file_stops_the_start(self, tmp_path: Path, content: str | None) -> None:
        """A CA file that is missing or holds no certificate is one clear line that names it."""
        file = tmp_path / "ca.pem"
        if content is not None:
            file.write_text(content)
        with pytest.raises(SettingsError, match=r"VLLM_HEADROOM_TLS_CA_FILE='.*ca.pem': must be a PEM bundle"):
            source_of("https://127.0.0.1:1", tls_ca_file=file)
