"""Who is compared: how each is installed and run as its own documentation says, and where it says what."""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.watched import Scraper


@dataclass(frozen=True, slots=True)
class Said:
    """What a monitor says of the load: `kv` by engine, or under `""` where it tells one number for all."""

    kv: Mapping[str, float] = field(default_factory=dict)
    capacity_tokens: float | None = None
    preemptions_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where one trial happens: the programs of its environment, vLLM's address, a free port, what the screen shows."""

    programs: Path
    vllm: str
    port: int
    screen: Callable[[], str]

    def call(self, *command: str) -> str:
        """What a program of the environment prints and ends."""
        done = subprocess.run(
            [self.programs / command[0], *command[1:]], capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout

    def page(self, path: str) -> str:
        """A page that it serves."""
        scraper = Scraper(f"http://127.0.0.1:{self.port}{path}", {})
        try:
            return scraper().decode()
        finally:
            scraper.close()


@dataclass(frozen=True, slots=True)
class Rival:
    """One monitor. `command` is what runs beside vLLM, `page` what it serves to be scraped, if anything."""

    name: str
    what: str
    command: Callable[[Path, str, int], list[str | Path]] | None
    run_as: str
    said: Callable[[Place], Said] = lambda _: Said()
    page: str | None = None
    seconds_between_readings: float = 1.0
    rate_words: str = "not offered"
    """What it offers in place of a rate of preemptions."""
    scrolls: bool = False
    """Whether it prints line after line instead of painting one screen."""
    why_not: str = ""
    """Why it cannot be run here, where it cannot."""


def _ours(place: Place) -> Said:
    page = place.page("/metrics")
    kv = dict(re.findall(r'^vllm_headroom_kv_used_ratio\{engine="(\d+)".*\} (\S+)', page, re.MULTILINE))
    pool = re.search(r'^vllm_headroom_kv_capacity_tokens\{engine="0".*source="engine"\} (\S+)', page, re.MULTILINE)
    rate = re.search(r'^vllm_headroom_preemptions_per_second\{engine="0".*\} (\S+)', page, re.MULTILINE)
    return Said(
        {engine: float(value) for engine, value in kv.items()},
        float(pool[1]) if pool else None,
        float(rate[1]) if rate else None,
    )


def _vmm(place: Place) -> Said:
    now = json.loads(place.page("/api/current"))
    return Said({str(engine["id"]): engine["kv_cache"] for engine in now["engines"]})


def _htop(place: Place) -> Said:
    told = json.loads(place.call("vllm-htop", "--url", place.vllm, "--output", "json", "--once").splitlines()[-1])
    return Said({each["engine"]: each["kv_pct"] / 100 for each in told["replicas"]})


def _vllmstat(place: Place) -> Said:
    told = json.loads(place.call("vllmstat", "-u", place.vllm, "--once", "--json"))
    rates = re.findall(r"(\d+\.\d+) preemptions/s", place.screen())
    return Said({"": told["kv"]["usage"]}, told["kv"]["capacity_tokens"], float(rates[-1]) if rates else None)


def _pytop(place: Place) -> Said:
    told = json.loads(place.call("vllmpytop", "--url", place.vllm, "--dump-json"))
    return Said({"": told["derived"]["kv_cache"] / 100})


def _doctor(place: Place) -> Said:
    told = place.call("vllm-doctor", "diagnose", f"{place.vllm}/metrics", "-o", "json", "--verbose")
    usage = re.search(r"KV cache usage: (\d+)%", told)
    return Said({"": int(usage[1]) / 100} if usage else {})


def _inferpilot(place: Place) -> Said:
    seconds = 3
    printed = place.call("inferpilot", "doctor", "--url", place.vllm, "--interval", str(seconds), "--json")
    told = json.loads(printed[printed.index("{") :])
    before, after = (told[when]["num_preemptions_total"] for when in ("before", "after"))
    return Said({"": told["after"]["kv_cache_usage_perc"]}, None, (after - before) / seconds)


RIVALS = (
    Rival(
        "vllm-headroom",
        "sidecar with a Prometheus page",
        lambda bin_dir, vllm, port: [
            bin_dir / "vllm-headroom", "run", "--vllm-url", vllm, "--listen", f"127.0.0.1:{port}",
        ],
        "vllm-headroom run --vllm-url URL",
        _ours,
        page="/metrics",
    ),
    Rival(
        "vllm-metrics-monitor",
        "web dashboard over SQLite",
        lambda bin_dir, vllm, port: [bin_dir / "vmm", f"{vllm}/metrics", "-p", str(port), "-i", "1"],
        "vmm URL/metrics -i 1",
        _vmm,
        page="/api/current",
    ),
    Rival(
        "vllm-htop",
        "terminal",
        lambda bin_dir, vllm, _: [bin_dir / "vllm-htop", "--url", vllm, "--interval", "1"],
        "vllm-htop --url URL --interval 1",
        _htop,
    ),
    Rival(
        "vllmstat",
        "terminal",
        lambda bin_dir, vllm, _: [bin_dir / "vllmstat", "-u", vllm, "-i", "1"],
        "vllmstat -u URL -i 1",
        _vllmstat,
    ),
    Rival(
        "vllmpytop",
        "terminal",
        lambda bin_dir, vllm, _: [bin_dir / "vllmpytop", "--url", vllm, "--interval", "1"],
        "vllmpytop --url URL --interval 1",
        _pytop,
    ),
    Rival(
        "vllm-doctor",
        "diagnosis, repeated",
        lambda bin_dir, vllm, _: [bin_dir / "vllm-doctor", "diagnose", f"{vllm}/metrics", "--watch"],
        "vllm-doctor diagnose URL/metrics --watch",
        _doctor,
        seconds_between_readings=5.0,
        rate_words="not offered; the total since the start",
    ),
    Rival(
        "inferpilot",
        "diagnosis, repeated",
        lambda bin_dir, vllm, _: [
            bin_dir / "inferpilot", "doctor", "--url", vllm, "--watch", "--interval", "1",
        ],
        "inferpilot doctor --url URL --watch --interval 1",
        _inferpilot,
        scrolls=True,
    ),
    Rival(
        "nvitop-exporter",
        "GPU exporter with a Prometheus page",
        lambda bin_dir, _, port: [bin_dir / "nvitop-exporter", "--port", str(port)],
        "nvitop-exporter --port PORT",
        page="/metrics",
    ),
    Rival(
        "ml-memguard",
        "library inside the engine's process",
        None,
        "",
        why_not="a library that vLLM's own process calls with its block counts; it reads no page",
    ),
)  # fmt: skip
