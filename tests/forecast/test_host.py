"""Host memory: what decides a kill, and when."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.forecast.host import HostForecaster, HostOptions, offload_pending, start_peak_bytes
from exporter.reading import HostReading
from tests.forecast.readings import GIB, MIB, follow_host, host


def test_far_below_the_limit_and_steady_is_ok() -> None:
    """Headroom is limit less what cannot be reclaimed; nothing is in sight."""
    last = follow_host(lambda t: host(t, limit=64 * GIB, committed=40 * GIB), 1200)[-1]
    assert (last.state, last.headroom_bytes, last.limited_by) == ("ok", 24 * GIB, "limit")
    assert (last.growth_bytes_per_second, last.time_to_exhaustion_seconds) == (0.0, None)
    assert set(last.probability.values()) == {0.0}


def test_growth_towards_the_limit_is_predicted_before_the_kill() -> None:
    """100 MiB a minute with 4 GiB left: predicted at least twenty minutes ahead, the time within 5 %."""
    rate = 100 * MIB / 60
    seen = follow_host(lambda t: host(t, limit=64 * GIB, committed=int(60 * GIB + rate * t)), 2300)
    alarm = next(assessment for assessment in seen if assessment.predicted)
    kill = (4 * GIB - HostOptions().floor_bytes) / rate
    assert kill - alarm.time > 1000
    assert alarm.time_to_exhaustion_seconds == pytest.approx(kill - alarm.time, rel=0.05)
    assert "MiB an hour" in alarm.reason


def test_page_cache_up_to_the_limit_is_no_danger() -> None:
    """Reading weights fills `current` to the limit with cache; what cannot be reclaimed decides."""

    def loading(t: float) -> HostReading:
        return HostReading(
            time=t,
            scope="container",
            rule="",
            current=64 * GIB,
            limit=64 * GIB,
            working_set=60 * GIB,
            committed=20 * GIB,
        )

    assert {assessment.state for assessment in follow_host(loading, 900)} == {"ok"}


def test_the_working_set_stands_in_where_no_more_is_known() -> None:
    """Without `memory.stat`'s details the kubelet's measure is used."""
    reading = HostReading(time=0.0, scope="pod", rule="", current=9, limit=64 * GIB, working_set=30 * GIB)
    assert HostForecaster().observe(reading).headroom_bytes == 34 * GIB


def test_without_a_limit_the_machine_is_the_wall() -> None:
    """No limit is not an endless one: the machine's available memory is what is left."""
    last = follow_host(lambda t: host(t, committed=40 * GIB, available=int(8 * GIB - MIB * t)), 1200)[-1]
    assert last.limited_by == "machine"
    assert last.headroom_bytes == 8 * GIB - 1199 * MIB
    assert last.state in ("watch", "predicted")


def test_a_machine_without_room_is_predicted_though_the_limit_is_far() -> None:
    """Overcommitted nodes kill below any limit."""
    seen = HostForecaster().observe(host(0.0, limit=200 * GIB, committed=10 * GIB, available=100 * MIB))
    assert (seen.predicted, seen.limited_by) == (True, "machine")


def test_nothing_known_is_unknown() -> None:
    """No limit and no machine give no verdict."""
    seen = HostForecaster().observe(HostReading(time=0.0, scope="process", rule="", committed=5))
    assert (seen.state, seen.headroom_bytes, seen.predicted) == ("unknown", None, None)
    assert seen.probability == {}


def test_a_restarted_container_is_watched_anew() -> None:
    """Half of the memory gone at once is a restart, not a relief to average over."""
    forecaster = HostForecaster()
    for second in range(1200):
        forecaster.observe(host(float(second), limit=64 * GIB, committed=30 * GIB + second * MIB))
    fresh = forecaster.observe(host(1200.0, limit=64 * GIB, committed=2 * GIB))
    assert fresh.growth_bytes_per_second is None


@pytest.mark.parametrize(
    ("gib", "shmem", "pending"),
    [(None, GIB, None), (0.0, GIB, None), (200.0, 0, 400 * GIB), (200.0, 100 * GIB, 300 * GIB), (200.0, None, None)],
)
def test_offloading_takes_twice_what_is_configured(gib: float | None, shmem: int | None, pending: int | None) -> None:
    """What is not yet shared is still to come; where shared memory cannot be seen nothing is assumed."""
    assert offload_pending(gib, shmem) == pending


def test_offloading_that_will_not_fit_is_predicted_before_it_is_taken() -> None:
    """100 GiB configured in a container of 160 GiB needs 200."""
    reading = host(0.0, limit=160 * GIB, committed=10 * GIB, shmem=0)
    seen = HostForecaster().observe(reading, kv_offloading_gib=100)
    assert seen.predicted
    assert seen.headroom_bytes == 160 * GIB - 10 * GIB - 200 * GIB
    assert "KV offloading has still to take" in seen.reason


def test_a_start_needs_swap_for_every_rank_and_the_weights() -> None:
    """4 GiB of swap space on each of 2 ranks beside 16 GiB of weights is 24 GiB."""
    assert start_peak_bytes(4, 2, 16 * GIB) == 24 * GIB


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | st.integers(0, 100), st.none() | st.integers(0, 200), st.integers(0, 100), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    st.none() | st.floats(0, 100),
)
def test_any_history_gives_a_sane_assessment(
    history: list[tuple[int | None, int | None, int, bool]], offloading: float | None
) -> None:
    """Chances lie in 0..1; state and alarm agree; no room is never negative time."""
    forecaster = HostForecaster(HostOptions(settle_seconds=120))
    for step, (limit, used, available, up) in enumerate(history):
        reading = host(
            step * 30.0,
            limit=None if limit is None else limit * GIB,
            committed=None if used is None else used * GIB,
            shmem=used,
            available=available * GIB,
            machine=100 * GIB,
        )
        seen = forecaster.observe(reading, kv_offloading_gib=offloading, serving=up)
        assert all(0 <= one <= 1 for one in seen.probability.values())
        assert (seen.state == "predicted") == bool(seen.predicted)
        assert seen.time_to_exhaustion_seconds is None or seen.time_to_exhaustion_seconds >= 0
