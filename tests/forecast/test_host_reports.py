"""What went wrong with other people's host memory, with their numbers. Each name tells the public report."""

import pytest

from exporter.forecast.host import HostForecaster, offload_pending, start_peak_bytes
from exporter.reading import HostReading
from tests.forecast.readings import GIB, MIB, follow_host, host


def gib(size: float) -> int:
    return int(size * GIB)


def test_vllm_53042_offloading_takes_1_92_times_its_size() -> None:
    """200 GiB configured were 385.0 GiB of shared memory that cannot be reclaimed, 443.5 in all, and a killed pod."""
    taken = HostReading(
        time=0.0,
        scope="container",
        rule="",
        current=gib(443.5),
        limit=gib(450),
        anon=gib(35.0),
        shmem=gib(385.0),
        committed=gib(420.0),
    )
    assert offload_pending(200, taken.shmem) == 0, "385.0 is all that was to come"
    starting = HostReading(time=0.0, scope="container", rule="", limit=gib(400), shmem=0, committed=gib(35.0))
    seen = HostForecaster().observe(starting, kv_offloading_gib=200)
    assert seen.predicted, "a limit of 400 GiB cannot hold twice 200 and 35"
    assert seen.headroom_bytes == gib(400) - gib(35) - gib(400)
    assert HostForecaster().observe(taken, kv_offloading_gib=200).headroom_bytes == gib(30)


def test_vllm_43639_anonymous_memory_leaks_under_steady_cache() -> None:
    """107 MiB of anonymous memory in every window is growth, while the cache beside it comes and goes."""

    def leaking(t: float) -> HostReading:
        anon = gib(20) + int(t // 300) * 107 * MIB
        cache = gib(10) if int(t) // 60 % 2 else gib(2)
        return HostReading(
            time=t, scope="container", rule="", current=anon + cache, limit=gib(40), anon=anon, committed=anon
        )

    last = follow_host(leaking, 3900)[-1]
    assert last.growth_bytes_per_second == pytest.approx(107 * MIB / 300, rel=0.1)
    assert last.state == "watch"


def test_vllm_586_swap_space_on_every_rank() -> None:
    """Four 16 GB cards: 1 GiB of swap space each and 26 GiB of weights make a peak of 30 GiB at the start."""
    assert start_peak_bytes(1, 4, 26 * GIB) == 30 * GIB


def test_vllm_19048_the_machine_runs_out_without_a_limit() -> None:
    """A container whose limit is `max` on a machine that runs out is predicted from the machine's memory."""
    seen = follow_host(
        lambda t: host(t, committed=int(gib(50) + 2 * MIB * t), available=int(gib(4) - 2 * MIB * t)), 1500
    )
    assert seen[-1].predicted
    assert seen[-1].limited_by == "machine"


def test_home_ops_13936_an_uncapped_cache_is_on_watch_a_day_ahead() -> None:
    """A kill every day and a half from steady growth is on watch when a day is left, and predicted in its last hour."""
    rate = 48 * GIB / (36 * 3600)
    early = follow_host(lambda t: host(t, limit=gib(64), committed=int(gib(40) + rate * t)), 1200)[-1]
    late = follow_host(lambda t: host(t, limit=gib(64), committed=int(gib(63) + rate * t)), 1500)[-1]
    assert early.state == "watch"
    assert early.time_to_exhaustion_seconds == pytest.approx(17.7 * 3600, rel=0.05)
    assert late.predicted
