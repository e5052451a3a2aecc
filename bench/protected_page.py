"""What TLS, a token and a password cost our own page: `python -m bench.protected_page`.

CPU of the serving process only (clients run in another), the least of several rounds, so that what else the machine
does weighs little; memory as resident memory over the number of idle connections.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import bcrypt
import trustme

from exporter.guard.guard import PageGuard
from exporter.guard.protection import GuardFiles
from exporter.server import HttpServer, Request, Response

PAGE = b"x" * 60_000
ROUNDS, SCRAPES, IDLE = 3, 100, 400
CLIENT = """
import socket, ssl, sys, time
port, secured, count, kept, head = int(sys.argv[1]), sys.argv[2] == "tls", int(sys.argv[3]), sys.argv[4], sys.argv[5]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
request = f"GET / HTTP/1.1\\r\\nHost: x\\r\\n{head}\\r\\n".encode().replace(b"|", b"\\r\\n")
def connect():
    plain = socket.create_connection(("127.0.0.1", port))
    return context.wrap_socket(plain) if secured else plain
def ask(connection):
    connection.sendall(request)
    answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200"), answer[:80]
    size = len(answer) - answer.index(b"\\r\\n\\r\\n") - 4
    while size < 60_000:
        size += len(connection.recv(65536))
one = connect()
ask(one)
print("ready", flush=True)
sys.stdin.readline()
open_ = []
for _ in range(count):
    if kept == "kept":
        ask(one)
    else:
        open_.append(connect())
        ask(open_[-1])
print("done", flush=True)
sys.stdin.readline()
"""


def _resident_kib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4.0


def _answer(_: Request) -> Response:
    return Response(200, "text/plain", PAGE)


@contextmanager
def _server(files: GuardFiles | None) -> Iterator[HttpServer]:
    if files is None:
        with HttpServer("127.0.0.1", 0, _answer, idle_seconds=60) as server:
            yield server
        return
    with (
        closing(PageGuard(files)) as guard,
        HttpServer("127.0.0.1", 0, _answer, guard=guard, idle_seconds=60) as server,
    ):
        yield server


def _cost(server: HttpServer, count: int, kept: str, head: str) -> tuple[float, float]:
    """CPU milliseconds and KiB of resident memory for each request."""
    kind = "tls" if server.url.startswith("https") else "plain"
    command = [sys.executable, "-c", CLIENT, str(server.port), kind, str(count), kept, head]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdout.readline()
        before, held = time.process_time(), _resident_kib()
        print(file=client.stdin, flush=True)
        client.stdout.readline()
        spent, grown = time.process_time() - before, _resident_kib() - held
        print(file=client.stdin, flush=True)
    return spent / count * 1000, grown / count


def _kinds(here: Path) -> dict[str, tuple[GuardFiles | None, str]]:
    """What stands before the page, and the header that opens it."""
    tls = GuardFiles(cert=here / "tls.crt", key=here / "tls.key")
    return {
        "open": (None, ""),
        "bearer token": (GuardFiles(token=here / "token"), "Authorization: Bearer 0123456789abcdef|"),
        "password, once it was right": (GuardFiles(here / "web.yml"), "Authorization: Basic YWxpY2U6c2VjcmV0|"),
        "TLS": (tls, ""),
    }


def _lay(here: Path) -> None:
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(here / "tls.crt")
    issued.private_key_pem.write_to_path(here / "tls.key")
    (here / "token").write_text("0123456789abcdef")
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(10)).decode()
    (here / "web.yml").write_text(f"basic_auth_users: {{alice: {hashed}}}\n")


def _hold(here: Path, name: str) -> float:
    """KiB that an idle connection holds; to be asked of a fresh process, whose heap has no room to spare."""
    files, head = _kinds(here)[name]
    with _server(files) as server:
        return _cost(server, IDLE, "new", head)[1]


def main(arguments: list[str]) -> int:
    """Print one table. The arguments are those that it gives to itself."""
    if arguments:
        print(_hold(Path(arguments[0]), arguments[1]))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        _lay(here)
        print("| page | scrape on a kept connection | on a new one | an idle connection holds |\n|---|---|---|---|")
        for name, (files, head) in _kinds(here).items():
            with _server(files) as server:
                kept = min(_cost(server, SCRAPES, "kept", head)[0] for _ in range(ROUNDS))
                fresh = min(_cost(server, SCRAPES, "new", head)[0] for _ in range(ROUNDS))
            again = [sys.executable, "-m", "bench.protected_page", scratch, name]
            held = float(subprocess.run(again, check=True, capture_output=True, text=True).stdout)
            print(f"| {name} | {kept:.2f} ms of CPU | {fresh:.2f} ms | {held:.0f} KiB |")
    for rounds in (10, 12, 14):
        salted = bcrypt.hashpw(b"secret", bcrypt.gensalt(rounds))
        spent = []
        for _ in range(3):
            before = time.process_time()
            bcrypt.checkpw(b"wrong", salted)
            spent.append(time.process_time() - before)
        print(f"\nbcrypt of cost {rounds}: {min(spent) * 1000:.0f} ms of CPU for each password that is tried", end="")
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
