"""A day around the daemon in virtual time: engines that come and go, names that change, outages, restarts, sleep.

Every hour has the same order and ends calmly, so that what is held at the end of one can be held against the next.
"""

import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from bench.soak_engine import Engine
from exporter.sources.device import Memory
from tests.sources.fakes import FakeLibrary, gpu
from tests.sources.trees import GIB, SERVE, Machine, group_v2

HOUR = 3600
OUTAGES = ("refused", "timeout", "http_5xx", "not_metrics", "truncated", "disconnected", "garbled")
STORMS = (0, 3, 11, 19)
"""Hours in which names come that were never seen before; the first has what any later one has."""
GROUP = "kubepods.slice/kubepods-pod1.slice/cri-a.scope"


class World:
    """Everything outside the daemon at `now` seconds; `jump` is what its monotonic clock is off by."""

    def __init__(self, directory: Path, seed: int = 0) -> None:
        self.now = 0.0
        self.jump = 0.0
        self.wall_jump = 0.0
        self.kills = 0
        self.starts = 0
        self.driver_lost = False
        self.guests_come = True
        self.storming = False
        """Whether names that were never seen before come with every second."""
        self.library = FakeLibrary(gpu(0), gpu(1))
        self._chance = random.Random(seed)
        self._machine = Machine(directory)
        self._engines = [
            Engine("llama", "0", 2600, self._chance),
            Engine("opaque", "9", 900, self._chance, pool_told=False),
        ]
        self._guests: list[Engine] = []
        self._second = -1
        self._shown: tuple[int, int, int] | None = None
        self.outage_seconds = 0
        """For how long the page has been away, or was when it came back just now."""
        self._start_server()

    def monotonic(self) -> float:
        """The machine's monotonic clock, which may jump here."""
        return self.now + self.jump

    def calendar(self) -> float:
        """The wall clock."""
        return 1_800_000_000.0 + self.now + self.wall_jump

    @property
    def outage(self) -> str | None:
        """What is wrong with the page now."""
        hour, second = divmod(int(self.now), HOUR)
        if 1600 <= second < 1610 + 7 * (hour % 8):
            return OUTAGES[hour % len(OUTAGES)]
        if hour % 2 and 2000 <= second < 2040:
            return "refused"
        if hour % 12 == 8 and 1000 <= second < 2300:
            return "refused"
        return None

    def pass_time(self) -> None:
        """Let the world come to `now`: traffic, restarts, guests, sleep, GPU and container."""
        while self._second < int(self.now):
            self._second += 1
            self._step(*divmod(self._second, HOUR))
        self._container()

    def page(self) -> bytes:
        """The page as a whole."""
        engines = (*self._engines, *self._guests)
        return ("\n".join(line for engine in engines for line in engine.lines()) + "\n").encode()

    def models(self) -> bytes:
        """`/v1/models`."""
        names = dict.fromkeys(engine.model for engine in (*self._engines, *self._guests))
        return json.dumps({"data": [{"id": name, "root": name, "max_model_len": 8192} for name in names]}).encode()

    @property
    def engines(self) -> int:
        """How many are on the page now."""
        return len(self._engines) + len(self._guests)

    def _step(self, hour: int, second: int) -> None:
        self.outage_seconds = self.outage_seconds + 1 if self.outage else 0
        if second == 2020 and hour % 2:
            self._restart()
        if second == 1700:
            self.now += 600 if hour % 24 == 5 else 0
            self.jump -= 3600 if hour % 24 == 7 else 0
            self.wall_jump += 3600 if hour % 24 == 9 else -3600 if hour % 24 == 10 else 0
        self._engines[0].sleeping = int(hour % 3 == 1 and 2200 <= second < 2500)
        self._guests = self._present(hour, second)
        self.library.refusal = "gpu_lost" if 2400 <= second < 2460 or self.driver_lost else None
        for device in self.library.shown:
            device.says = self.library.refusal or Memory(80 * GIB, 70 * GIB, 10 * GIB)
        rate = 1.6 + 0.6 * math.sin(second / 500) + (5.0 if second % 600 < 40 else 0.0)
        for engine in (*self._engines, *self._guests):
            engine.second(self._arrivals(rate if engine.model == "llama" else 1.2))

    def _present(self, hour: int, second: int) -> list[Engine]:
        """Guests: two engines that scale out, a model of this hour alone, and in some hours a storm of names."""
        wanted: list[tuple[str, str]] = []
        if self.storming:
            return [Engine(f"storm-{second}-{number}", f"{second}-{number}", 2000, self._chance) for number in range(8)]
        if not self.guests_come:
            return []
        if 300 <= second < 1500:
            wanted += [("llama", "1"), ("llama", "2")]
        if 600 <= second < 900:
            wanted.append((f"model-of-hour-{hour}", "8"))
        if hour in STORMS and 1800 <= second < 1830:
            wanted += [(f"storm-{hour}-{second}-{number}", f"{second}-{number}") for number in range(8)]
        kept = {(engine.model, engine.number): engine for engine in self._guests}
        return [kept.get(who) or Engine(*who, 2000, self._chance) for who in wanted]

    def _arrivals(self, rate: float) -> int:
        """A Poisson number."""
        threshold, count, product = math.exp(-rate), 0, self._chance.random()
        while product > threshold:
            count += 1
            product *= self._chance.random()
        return count

    def _restart(self) -> None:
        for engine in self._engines:
            engine.restart()
        self._machine.end(self._pid)
        self.kills += 1
        self._start_server()

    def _start_server(self) -> None:
        self.starts += 1
        self._pid = 100 + self.starts
        path = self._machine.process(self._pid, SERVE, started=self._pid, group=f"0::/{GROUP}")
        (path / "root").mkdir(exist_ok=True)
        self._container()

    def _container(self) -> None:
        shown = int(self.now) // 10, self.kills, self.starts
        if shown == self._shown:
            return
        self._shown = shown
        used = 20 * GIB + int(self.now % 60) * 2**20
        group_v2(self._machine.cgroup / GROUP, used, limit=64 * GIB, anon=used, kills=self.kills)

    @property
    def proc(self) -> Path:
        """Where /proc is."""
        return self._machine.proc

    @property
    def cgroup(self) -> Path:
        """Where the control groups are."""
        return self._machine.cgroup


class Wire(httpx.BaseTransport):
    """The network between the daemon and vLLM, as httpx sees it."""

    def __init__(self, world: World, timeout_seconds: float) -> None:
        self._world = world
        self._timeout_seconds = timeout_seconds
        self._requests = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One answer; it takes some of the world's time."""
        self._requests += 1
        self._world.now += 1.3 if self._requests % 400 == 0 else 0.004
        outage = self._world.outage
        if outage == "refused":
            raise httpx.ConnectError("refused") from ConnectionRefusedError(111, "refused")
        if outage == "disconnected":
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        if outage == "timeout":
            self._world.now += self._timeout_seconds
            raise httpx.ReadTimeout("late")
        body = self._world.models() if request.url.path == "/v1/models" else self._world.page()
        headers = {"Content-Type": "text/plain", "Content-Length": str(len(body))}
        if outage == "not_metrics":
            headers["Content-Type"], body = "text/html", b"<html>\n<body>Sign in</body></html>\n"
        if outage == "garbled":
            headers["Content-Encoding"] = "gzip"
        return httpx.Response(500 if outage == "http_5xx" else 200, headers=headers, stream=Chunks(body, outage))


class Chunks(httpx.SyncByteStream):
    """A body as it arrives; one that is to be cut short breaks off after its first part."""

    def __init__(self, body: bytes, outage: str | None) -> None:
        self._parts: Sequence[bytes] = [body[at : at + 65536] for at in range(0, len(body), 65536)]
        self._outage = outage

    def __iter__(self) -> Iterator[bytes]:
        yield self._parts[0]
        if self._outage == "truncated":
            raise httpx.ReadError("broken")
        yield from self._parts[1:]
