"""One monitor beside one vLLM: what it costs, what it says, and what it does when vLLM or the end comes."""

import re
import socket
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.rivals import Place, Rival, Said
from bench.peers.terminal import Terminal
from bench.served import CAPACITY_TOKENS, EMPTY, FULL, PREEMPTIONS_A_SECOND, Served, served
from bench.watched import Scraper, cpu_seconds, environment, memory_mib, ours, timed

SETTLING_SECONDS = 70.0
"""Longer than the minute over which a rate is taken."""
DOWN_SECONDS = 12.0
SCRAPES = 300
PAUSE_SECONDS = 0.0531
DOWN_WORDS = re.compile(
    r"\b(down|unreachable|refused|offline|disconnected|stale|lost|no connection|cannot|can't|failed|error)\b",
    re.IGNORECASE,
)
STILL_FULL = re.compile(r"\b98(?:\.0+)?\s?%|\b0\.98\b|\b98\.0\b")


@dataclass(frozen=True, slots=True)
class Cost:
    """Numbers of one run; times in milliseconds."""

    rss_mib: float
    cpu_percent: float
    requests_per_second: float
    scrape_p50: float | None
    scrape_p99: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One line of the table."""

    rival: Rival
    version: str
    cost: Cost | None = None
    said: Said = field(default_factory=Said)
    when_down: str = ""
    when_ended: str = ""
    why_not: str = ""


def tried(rival: Rival, seconds: float) -> Outcome:
    """Install it, run it, ask it, take vLLM away from it, end it."""
    programs = ours() if rival.name == "vllm-headroom" else environment(rival.name, rival.name)
    version = _version(programs, rival.name)
    if rival.command is None:
        return Outcome(rival, version, why_not=rival.why_not)
    with tempfile.TemporaryDirectory() as home, served(2, "apart") as server:
        port = _free_port()
        terminal = Terminal(rival.command(programs, server.url, port), Path(home))
        try:
            time.sleep(SETTLING_SECONDS)
            if terminal.process.poll() is not None:
                first = next((line.strip() for line in terminal.shown().splitlines() if line.strip()), "nothing")
                return Outcome(rival, version, why_not=f"ends with exit code {terminal.process.returncode}: {first}")
            cost = _cost(rival, terminal, server, port, seconds)
            said = rival.said(Place(programs, server.url, port, terminal.shown))
            code, took = terminal.end()
        finally:
            terminal.kill()
    ended = f"exit code {code}, {took:.1f} s" if code is not None and code >= 0 else f"dies of the signal, {took:.1f} s"
    return Outcome(rival, version, cost, said, _when_down(rival, programs), "ignores it" if code is None else ended)


def _cost(rival: Rival, terminal: Terminal, server: Served, port: int, seconds: float) -> Cost:
    cpu, asked, begun = cpu_seconds(terminal.pid), sum(server.requests().values()), time.monotonic()
    time.sleep(seconds)
    cpu, wall = cpu_seconds(terminal.pid) - cpu, time.monotonic() - begun
    asked = sum(server.requests().values()) - asked
    memory = memory_mib(terminal.pid)
    p50 = p99 = None
    if rival.page is not None:
        scraper = Scraper(f"http://127.0.0.1:{port}{rival.page}")
        times = timed(scraper, SCRAPES, PAUSE_SECONDS)
        scraper.close()
        p50, p99 = times.median, times.p99
    return Cost(memory, 100 * cpu / wall, asked / wall, p50, p99)


def _when_down(rival: Rival, programs: Path) -> str:
    """What a fresh run of it does once vLLM is gone: whether it lives, says so, and still shows the full pool."""
    assert rival.command is not None
    with tempfile.TemporaryDirectory() as home, served(2, "apart") as server:
        port = _free_port()
        terminal = Terminal(rival.command(programs, server.url, port), Path(home))
        try:
            time.sleep(DOWN_SECONDS)
            usual = _words(terminal.shown())
            server.down()
            time.sleep(DOWN_SECONDS / 2)
            if rival.scrolls:
                terminal.wipe()
            time.sleep(DOWN_SECONDS / 2)
            if (code := terminal.process.poll()) is not None:
                return f"ends with exit code {code}"
            told = terminal.shown() if rival.page is None else _served_page(rival.page, port)
        finally:
            terminal.kill()
    words = _words(told) - usual  # what is always there, as a key named Down, says nothing
    says = f"says so (“{next(iter(words))}”)" if words else "does not say so"
    if rival.name == "vllm-headroom":
        says = "says so (`source_up` 0)" if 'source_up{source="vllm"} 0.0' in told else "does not say so"
    return f"{says}, still shows 98 %" if STILL_FULL.search(told) else f"{says}, shows no usage"


def _words(told: str) -> Counter[str]:
    return Counter(word.lower() for word in DOWN_WORDS.findall(told))


def _served_page(path: str, port: int) -> str:
    scraper = Scraper(f"http://127.0.0.1:{port}{path}", {})
    try:
        return scraper().decode()
    finally:
        scraper.close()


def kv_verdict(said: Said) -> str:
    """Whether the usage of a full and of an empty engine was told apart."""
    told = {engine: f"{value:.0%}".replace("%", " %") for engine, value in said.kv.items()}
    if not told:
        return "not offered"
    if set(told) == {"0", "1"}:
        right = abs(said.kv["0"] - FULL) < 0.01 and abs(said.kv["1"] - EMPTY) < 0.01
        return f"{'right' if right else 'wrong'}: {told['0']} and {told['1']}"
    (one,) = told.values()
    return f"one number for both: {one}"


def capacity_verdict(said: Said) -> str:
    """Whether the size of an engine's pool was told."""
    if said.capacity_tokens is None:
        return "not offered"
    right = said.capacity_tokens == CAPACITY_TOKENS
    return f"{'right' if right else 'wrong'}: {said.capacity_tokens:,.0f}"


def rate_verdict(said: Said, words: str) -> str:
    """Whether the rate of preemptions was told."""
    if said.preemptions_per_second is None:
        return words
    right = abs(said.preemptions_per_second - PREEMPTIONS_A_SECOND) < 0.1 * PREEMPTIONS_A_SECOND
    return f"{'right' if right else 'wrong'}: {said.preemptions_per_second:.1f}"


def _version(programs: Path, name: str) -> str:
    code = f"import importlib.metadata; print(importlib.metadata.version({name!r}))"
    return subprocess.run([programs / "python", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
