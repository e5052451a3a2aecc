"""The guard before our pages, asked over real connections."""

import logging
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest

from exporter.errors import SettingsError
from exporter.guard.guard import LOOK_SECONDS, OPEN_PATHS, PageGuard
from exporter.guard.protection import GuardFiles
from exporter.server import HttpServer, Request, Response
from tests.guard.files import AUTHORITY, CLIENTS, TLS, Files, replace, trusting, users

CLIENT = TLS + "  client_ca_file: clients.pem\n  client_auth_type: RequireAndVerifyClientCert\n"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_a_look(self) -> None:
        self.now += LOOK_SECONDS


def handle(request: Request) -> Response:
    return Response(200, "text/plain", f"secret page {request.path} ".encode() + b"x" * 100_000)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@contextmanager
def serving(files: GuardFiles, clock: Clock | None = None, **bounds: float) -> Iterator[HttpServer]:
    with (
        closing(PageGuard(files, clock or Clock())) as guard,
        HttpServer("127.0.0.1", 0, handle, guard=guard, **bounds) as server,  # type: ignore[arg-type]
    ):
        yield server


def get(server: HttpServer, path: str = "/metrics", client: ssl.SSLContext | None = None, **request: object) -> int:
    with httpx.Client(verify=client or trusting(), base_url=server.url, trust_env=False) as http:
        answer = http.get(path, **request)  # type: ignore[arg-type]
    assert answer.text.startswith("secret page") == (answer.status_code == 200)
    return answer.status_code


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_pages_are_served_by_tls(files: Files) -> None:
    """With a certificate the URL is https, whole pages arrive over one kept connection, and HTTP/1.1 is agreed on."""
    with serving(GuardFiles(cert=files.cert, key=files.key)) as server:
        assert server.url == f"https://127.0.0.1:{server.port}"
        with httpx.Client(verify=trusting(), base_url=server.url) as http:
            for path in ("/a", "/b"):
                assert len(http.get(path).content) > 100_000
        context = trusting()
        context.set_alpn_protocols(["h2", "http/1.1"])
        with (
            socket.create_connection(("127.0.0.1", server.port)) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as secured,
        ):
            assert secured.selected_alpn_protocol() == "http/1.1"


@pytest.mark.parametrize(
    ("version", "config", "served"),
    [
        (ssl.TLSVersion.TLSv1_2, TLS, True),
        (ssl.TLSVersion.TLSv1_3, TLS, True),
        (ssl.TLSVersion.TLSv1_2, TLS + "  min_version: TLS13\n", False),
        (ssl.TLSVersion.TLSv1_3, TLS + "  max_version: TLS12\n", False),
    ],
)
def test_versions_of_tls(files: Files, version: ssl.TLSVersion, config: str, served: bool) -> None:
    """The versions from min_version to max_version are spoken, and no other."""
    client = trusting()
    client.minimum_version = client.maximum_version = version
    with serving(GuardFiles(web_config=files.config(config))) as server:
        if served:
            assert get(server, client=client) == 200
        else:
            with pytest.raises(httpx.ConnectError):
                get(server, client=client)


def test_what_is_not_tls_is_told_so_and_leaves_no_trace(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """Plain HTTP on the port gets 400 and a sentence; it, garbage and broken handshakes write nothing into the log."""
    with caplog.at_level(logging.INFO), serving(GuardFiles(cert=files.cert, key=files.key)) as server:
        answer = httpx.get(server.url.replace("https", "http"))
        assert (answer.status_code, answer.text) == (400, "this port speaks HTTPS\n")
        for sent in (b"", b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x16" + b"\xff" * 5000):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
                raw.sendall(sent)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(4096):
                    pass
        with pytest.raises(httpx.ConnectError):
            get(server, client=ssl.create_default_context())
        assert get(server) == 200
    assert [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))] == []


def test_a_handshake_that_stalls_is_ended(files: Files) -> None:
    """A client that begins TLS and says no more is hung up on, and meanwhile others are served."""
    with serving(GuardFiles(cert=files.cert, key=files.key), idle_seconds=0.5) as server:
        stalled = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(50)]
        for raw in stalled:
            raw.sendall(b"\x16\x03\x01\x02\x00")
        assert get(server) == 200
        for raw in stalled:
            with raw:
                assert raw.recv(64) == b""


def test_stalled_handshakes_count_as_connections(files: Files) -> None:
    """Clients in the middle of a handshake are bounded in number like all others."""
    with serving(GuardFiles(cert=files.cert, key=files.key), max_connections=3) as server, ExitStack() as stalled:
        for _ in range(3):
            raw = stalled.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            raw.sendall(b"\x16\x03\x01\x02\x00")
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as fourth:
            assert fourth.recv(64) == b""


def test_a_bearer_token_is_asked_for(files: Files) -> None:
    """Without TLS too, only the token opens the page; the refusal says how to ask."""
    files.token.write_text("right-token\n")
    with serving(GuardFiles(token=files.token)) as server:
        assert server.url.startswith("http:")
        assert get(server, headers=bearer("right-token")) == 200
        refusal = httpx.get(f"{server.url}/metrics")
        assert (refusal.status_code, refusal.headers["www-authenticate"]) == (401, 'Bearer realm="vllm-headroom"')
        for value in ("Bearer", "Bearer wrong", "right-token", "Basic right-token", "bearer right-token x"):
            assert get(server, headers={"Authorization": value}) == 401
        assert get(server, headers={"Authorization": "bearer  right-token"}) == 200


def test_users_are_asked_for_their_password(files: Files) -> None:
    """A user of the web config gets in with the right password, by the scheme that browsers and Prometheus speak."""
    files.token.write_text("token")
    with serving(GuardFiles(web_config=files.config(TLS + users(alice="secret")), token=files.token)) as server:
        assert get(server, auth=("alice", "secret")) == 200
        assert get(server, headers=bearer("token")) == 200
        for pair in (("alice", "wrong"), ("bob", "secret"), ("", "")):
            assert get(server, auth=pair) == 401
        for value in ("Basic", "Basic !!", "Basic YWxpY2U=", "Basic /////w==", "Digest x"):
            assert get(server, headers={"Authorization": value}) == 401


def test_methods_and_unknown_paths_are_guarded_too(files: Files) -> None:
    """Nothing is told to a stranger by another method, path, query or spelling of the open ones."""
    files.token.write_text("token")
    with serving(GuardFiles(token=files.token)) as server, httpx.Client(base_url=server.url) as http:
        for path in (
            "/",
            "/nothing",
            "/metrics?x=/healthz",
            "/healthz/",
            "/healthz/../metrics",
            "//healthz",
            "/HEALTHZ",
        ):
            assert http.get(path).status_code == 401
        for method in ("HEAD", "POST", "OPTIONS", "DELETE"):
            assert http.request(method, "/metrics").status_code == 401


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
def test_health_is_open_to_whoever_reaches_the_port(files: Files, path: str) -> None:
    """A kubelet's probe, which has neither certificate nor password, gets its answer whatever the pages ask for."""
    files.token.write_text("token")
    config = files.config(CLIENT + users(alice="secret"))
    with serving(GuardFiles(web_config=config, token=files.token)) as server:
        assert get(server, path) == 200


def test_client_certificates(files: Files) -> None:
    """A required certificate must be one of the CA; another ends the handshake, none gets 403."""
    known, stranger = CLIENTS.issue_cert("prometheus"), AUTHORITY.issue_cert("prometheus")
    with serving(GuardFiles(web_config=files.config(CLIENT))) as server:
        assert get(server, client=trusting(known)) == 200
        assert get(server) == 403
        with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
            get(server, client=trusting(stranger))
    optional = CLIENT.replace("RequireAndVerify", "Verify").replace("ClientCert\n", "ClientCertIfGiven\n")
    with serving(GuardFiles(web_config=files.config(optional))) as server:
        assert get(server) == get(server, client=trusting(known)) == 200


def _serial(server: HttpServer) -> object:
    with (
        socket.create_connection(("127.0.0.1", server.port)) as raw,
        trusting().wrap_socket(raw, server_hostname="127.0.0.1") as secured,
    ):
        return (secured.getpeercert() or {})["serialNumber"]


def test_files_are_followed_as_they_change(files: Files) -> None:
    """A renewed certificate, new users and a new token hold from the next look on; open connections go on."""
    clock = Clock()
    files.token.write_text("first")
    config = files.config(TLS + users(alice="secret"))
    with serving(GuardFiles(web_config=config, token=files.token), clock) as server:
        before = _serial(server)
        with httpx.Client(verify=trusting(), base_url=server.url) as kept:
            assert kept.get("/", headers=bearer("first")).status_code == 200
            files.renew()
            replace(files.token, b"second")
            files.config(TLS + users(bob="secret"))
            assert _serial(server) == before
            clock.pass_a_look()
            assert kept.get("/", headers=bearer("first")).status_code == 401
            assert kept.get("/", headers=bearer("second")).status_code == 200
        assert _serial(server) != before
        assert get(server, auth=("alice", "secret")) == 401
        assert get(server, auth=("bob", "secret")) == 200


SPOILT = {
    "key of another": lambda files: replace(files.key, AUTHORITY.issue_cert("x").private_key_pem.bytes()),
    "no certificate": lambda files: replace(files.cert, b"none"),
    "certificate gone": lambda files: files.cert.unlink(),
    "no YAML": lambda files: files.config("{"),
    "no users any more": lambda files: files.config(TLS),
    "empty config": lambda files: files.config(""),
    "no TLS any more": lambda files: files.config(users(alice="secret")),
    "a user without hash": lambda files: files.config(TLS + "basic_auth_users: {alice: hunter2}"),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=list(SPOILT))
def test_a_bad_reload_keeps_the_old_and_says_why(files: Files, spoil: object, caplog: pytest.LogCaptureFixture) -> None:
    """Files that are not fit, or would open the page, change nothing and cost one line, also when asked again."""
    clock = Clock()
    config = files.config(TLS + users(alice="secret"))
    with serving(GuardFiles(web_config=config), clock) as server:
        before = _serial(server)
        spoil(files)  # type: ignore[operator]
        for _ in range(3):
            clock.pass_a_look()
            assert _serial(server) == before
            assert get(server, auth=("alice", "secret")) == 200
            assert get(server) == 401
    (line,) = [record for record in caplog.records if record.name.startswith("exporter")]
    assert line.levelname == "ERROR"
    assert line.getMessage().startswith("what protects the page stays as it was: ")
    assert "\n" not in line.getMessage()
    assert "hunter2" not in line.getMessage()


def test_a_fault_of_ours_keeps_the_old_too(
    files: Files, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a reload runs into, the page goes on to be served as it was."""
    clock = Clock()
    with serving(GuardFiles(cert=files.cert, key=files.key), clock) as server:

        def fail(*_: object) -> None:
            raise MemoryError

        monkeypatch.setattr("exporter.guard.guard.read_protection", fail)
        files.renew()
        clock.pass_a_look()
        assert get(server) == 200
    assert "stays as it was: reading failed: MemoryError" in caplog.text


def test_a_mended_file_is_taken_up(files: Files) -> None:
    """After a bad reload the next good one holds."""
    clock = Clock()
    with serving(GuardFiles(cert=files.cert, key=files.key), clock) as server:
        before = _serial(server)
        files.cert.unlink()
        clock.pass_a_look()
        assert _serial(server) == before
        files.renew()
        clock.pass_a_look()
        assert _serial(server) != before


def test_reload_reads_at_once(files: Files) -> None:
    """What SIGHUP calls does not wait for the next look."""
    files.token.write_text("first")
    with (
        closing(PageGuard(GuardFiles(token=files.token), Clock())) as guard,
        HttpServer("127.0.0.1", 0, handle, guard=guard) as server,
    ):
        replace(files.token, b"second")
        assert get(server, headers=bearer("second")) == 401
        guard.reload()
        assert get(server, headers=bearer("second")) == 200


def _encrypted(files: Files) -> None:
    command = ["openssl", "pkey", "-aes128", "-passout", "pass:x", "-in", str(files.key), "-out", f"{files.key}.enc"]
    subprocess.run(command, check=True, capture_output=True)
    Path(f"{files.key}.enc").replace(files.key)


UNFIT = {
    "encrypted": (_encrypted, "the key must not be encrypted: openssl pkey"),
    "key of another": (SPOILT["key of another"], "the key must be the certificate's own"),
    "no certificate": (SPOILT["no certificate"], "must be PEM files"),
    "gone": (SPOILT["certificate gone"], "certificate '.*tls.crt': cannot be read"),
    "no CA": (lambda files: files.ca.write_text("x"), "client CA '.*clients.pem': must be a PEM bundle"),
    "no token": (lambda files: files.token.write_text(" \n"), "must hold one token of printable ASCII"),
    "two tokens": (lambda files: files.token.write_text("a\nb"), "must hold one token of printable ASCII"),
}


@pytest.mark.parametrize(("spoil", "told"), UNFIT.values(), ids=list(UNFIT))
def test_unfit_files_stop_the_start(files: Files, spoil: object, told: str) -> None:
    """Each wrong file is one line that names it and the rule; a key's password is never asked for on the terminal."""
    files.token.write_text("token")
    named = GuardFiles(web_config=files.config(CLIENT), token=files.token)
    spoil(files)  # type: ignore[operator]
    with pytest.raises(SettingsError, match=told) as error:
        PageGuard(named)
    assert len(error.value.faults) == 1
    assert "\n" not in error.value.faults[0]


def test_certificate_and_key_belong_together(files: Files) -> None:
    """One without the other, or both beside a web config that has its own, is refused by name."""
    with pytest.raises(SettingsError, match=r"PAGE_TLS_KEY_FILE: must be given where .*CERT_FILE is"):
        PageGuard(GuardFiles(cert=files.cert))
    with pytest.raises(SettingsError, match=r"PAGE_TLS_CERT_FILE: must be given where .*KEY_FILE is"):
        PageGuard(GuardFiles(key=files.key))
    with pytest.raises(SettingsError, match="has a tls_server_config already"):
        PageGuard(GuardFiles(files.config(TLS), files.cert, files.key))


def test_the_servers_end_is_not_delayed_by_a_client_in_tls(files: Files) -> None:
    """Closing drops a client in the middle of TLS and leaves no thread behind."""
    before = set(threading.enumerate())
    with serving(GuardFiles(cert=files.cert, key=files.key)) as server:
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        raw.sendall(b"\x16\x03\x01")
    with raw:
        assert raw.recv(1) == b""
    assert not [thread for thread in threading.enumerate() if thread.name == "http" and thread not in before]
