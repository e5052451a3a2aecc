"""GPU memory outside the pool: what is normal, what is a climb, and whose it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.forecast.device import DEFAULT_FLOOR_BYTES, DeviceForecaster, DeviceOptions
from exporter.reading import DeviceReading
from tests.forecast.readings import GIB, MIB, device, follow

CARD = 80 * GIB
PERCENT_AN_HOUR = CARD / 100 / 3600


@pytest.mark.parametrize("gib", [8, 16, 24, 48, 80])
def test_a_card_of_any_size_at_99_percent_is_ok(gib: int) -> None:
    """The floor of a small card is small."""
    card = gib * GIB
    seen = follow(lambda t: device(t, card, card - int(0.99 * card)), 700, {"logits_chunk": 512 * MIB})
    assert {assessment.state for assessment in seen} == {"ok"}


def test_a_full_but_steady_card_is_ok() -> None:
    """99 % used by `gpu_memory_utilization` and steady for two hours: ok at every reading, no time, next to no risk."""
    seen = follow(lambda t: device(t, CARD, CARD // 100), 7200, {"logits": 4 * GIB, "logits_chunk": 251 * MIB})
    assert {assessment.state for assessment in seen} == {"ok"}
    last = seen[-1]
    assert (last.predicted, last.time_to_exhaustion_seconds, last.growth_bytes_per_second) == (False, None, 0.0)
    assert max(last.probability.values()) < 0.03
    assert last.headroom_bytes == CARD // 100


def test_half_a_gibibyte_left_and_climbing_is_not_ok() -> None:
    """500 MiB free and climbing 1 % an hour is on watch after eleven minutes and predicted well before it is full."""
    seen = follow(lambda t: device(t, CARD, int(500 * MIB - PERCENT_AN_HOUR * t)), 1600)
    assert seen[660].state != "ok"
    assert seen[660].growth_bytes_per_second == pytest.approx(PERCENT_AN_HOUR, rel=0.01)
    alarm = next(assessment for assessment in seen if assessment.predicted)
    full = (500 * MIB - DEFAULT_FLOOR_BYTES) / PERCENT_AN_HOUR
    assert full - alarm.time > 600
    assert alarm.time_to_exhaustion_seconds == pytest.approx(full - alarm.time, rel=0.05)


def test_climbing_with_plenty_left_is_watched_but_not_predicted() -> None:
    """1 % an hour with 15 GiB free is 18 hours away."""
    last = follow(lambda t: device(t, CARD, int(15 * GIB - PERCENT_AN_HOUR * t)), 1200)[-1]
    assert (last.state, last.predicted) == ("watch", False)
    assert last.time_to_exhaustion_seconds == pytest.approx(18.3 * 3600, rel=0.05)


def test_less_than_one_allocation_free_is_predicted_at_once() -> None:
    """When one chunk of logits does not fit, no trend is needed."""
    first = DeviceForecaster().observe(device(0.0, CARD, 200 * MIB), {"logits_chunk": 251 * MIB})
    assert (first.state, first.predicted, first.time_to_exhaustion_seconds) == ("predicted", True, 0.0)
    assert set(first.probability.values()) == {1.0}
    assert "200 MiB are free, less than the 251 MiB one allocation may need" in first.reason


def test_lazy_allocations_after_the_first_requests_are_no_leak() -> None:
    """Idle for half an hour, then four steps of 400 MiB in four minutes: never predicted, and ok again."""

    def warming(t: float) -> DeviceReading:
        return device(t, CARD, 4 * GIB - int(min(max(t - 1800, 0) // 60, 4)) * 400 * MIB)

    seen = follow(warming, 5400)
    assert not any(assessment.predicted for assessment in seen)
    assert {assessment.state for assessment in seen[2400:]} == {"ok"}


def test_a_noisy_climb_is_found_and_noise_is_not() -> None:
    """Under noise of 50 MiB, 1 % an hour is found within the hour; the noise alone never is."""
    noise = np.random.default_rng(3).normal(size=7200) * 50 * MIB
    climbing = follow(lambda t: device(t, CARD, int(3 * GIB - PERCENT_AN_HOUR * t - noise[int(t)])), 3600)
    calm = follow(lambda t: device(t, CARD, int(3 * GIB - noise[int(t)])), 7200)
    assert climbing[-1].growth_bytes_per_second == pytest.approx(PERCENT_AN_HOUR, rel=0.15)
    assert {assessment.state for assessment in calm} == {"ok"}


def test_a_neighbour_that_grows_is_named_as_a_neighbour() -> None:
    """The server stands still while another process takes memory; the sentence says so."""

    def shared(t: float) -> DeviceReading:
        grown = int(2 * MIB * t)
        return device(t, CARD, 8 * GIB - grown, this_process=60 * GIB, other_processes=12 * GIB + grown)

    last = follow(shared, 1200)[-1]
    assert (last.grower, last.shared) == ("neighbour", True)
    assert "another process on this GPU grows" in last.reason


@pytest.mark.parametrize(("mine", "grower"), [(True, "server"), (False, "unattributed")])
def test_other_growth_is_the_servers_or_nobodys(mine: bool, grower: str) -> None:
    """Growth is the server's where its PIDs can be resolved, else it is not guessed."""

    def growing(t: float) -> DeviceReading:
        free = 8 * GIB - int(2 * MIB * t)
        used = CARD - free
        return device(t, CARD, free, this_process=used if mine else None, other_processes=0 if mine else None)

    last = follow(growing, 1200)[-1]
    assert last.grower == grower
    assert last.shared is (False if mine else None)


def test_a_restart_is_not_growth() -> None:
    """Memory given back and taken again within minutes is another life of the server, watched anew."""

    def restarting(t: float) -> DeviceReading:
        if t < 2000:
            return device(t, CARD, 4 * GIB)
        return device(t, CARD, max(4 * GIB, 79 * GIB - int((t - 2000) * 300 * MIB)))

    seen = follow(restarting, 4000)
    assert not any(assessment.predicted for assessment in seen)
    assert seen[2300].growth_bytes_per_second is None


def test_loading_a_model_is_not_growth() -> None:
    """While the server is not up its memory climbs for twenty minutes, and that is its start."""
    forecaster = DeviceForecaster()
    states = set()
    for second in range(1200):
        free = 79 * GIB - second * 60 * MIB
        states.add(forecaster.observe(device(float(second), CARD, free), serving=False).state)
    assert states == {"unknown"}
    up = forecaster.observe(device(1200.0, CARD, 8 * GIB), serving=True)
    assert (up.state, up.growth_bytes_per_second) == ("ok", None)


def test_a_page_that_is_late_for_a_minute_is_not_a_restart() -> None:
    """Under load vLLM's page may time out; what was learnt is kept."""
    forecaster = DeviceForecaster()
    follow(lambda t: device(t, CARD, int(3 * GIB - PERCENT_AN_HOUR * t)), 1200, forecaster=forecaster)
    late = forecaster.observe(device(1220.0, CARD, 3 * GIB), serving=False)
    assert late.state == "watch"
    gone = forecaster.observe(device(1300.0, CARD, 3 * GIB), serving=False)
    assert gone.state == "unknown"


def test_a_gpu_that_does_not_tell_is_unknown() -> None:
    """No figure, no verdict: headroom, growth and probability are absent, and the reason is in the sentence."""
    silent = DeviceReading(time=0.0, index=3, uuid="GPU-3", missing={"memory": "no_permission"})
    seen = DeviceForecaster().observe(silent, {"sampler": 5})
    assert (seen.state, seen.predicted, seen.headroom_bytes) == ("unknown", None, None)
    assert seen.probability == {}
    assert seen.reason == "GPU 3 does not tell its memory (no permission)"
    assert seen.next_allocation_bytes == {"sampler": 5}


def test_an_allocation_that_never_came_gets_less_likely() -> None:
    """The prior of an unseen allocation shrinks with the time it was watched for, and never raises the alarm."""
    seen = follow(lambda t: device(t, CARD, 2 * GIB), 7200, {"logits": 4 * GIB})
    assert 0 < seen[-1].probability[3600.0] < seen[0].probability[3600.0] < 0.03


def test_unified_memory_is_forecast_like_any_other() -> None:
    """On a part with the machine's memory the room is what the machine has available."""
    seen = follow(lambda t: device(t, 128 * GIB, int(2 * GIB - MIB * t), unified=True), 1200)
    assert seen[-1].state in ("watch", "predicted")


def test_the_alarm_ends_after_memory_was_freed() -> None:
    """Two minutes without a reason for it, and the alarm is over."""
    forecaster = DeviceForecaster()
    follow(lambda t: device(t, CARD, 50 * MIB), 10, forecaster=forecaster)
    after = follow(lambda t: device(t, CARD, 5 * GIB), 200, forecaster=forecaster, start=10)
    assert after[0].predicted
    assert not after[-1].predicted


def test_one_reading_in_ten_seconds_is_enough() -> None:
    """Another poll interval changes neither slope nor verdict."""
    forecaster = DeviceForecaster()
    for second in range(0, 1800, 10):
        last = forecaster.observe(device(float(second), CARD, int(3 * GIB - PERCENT_AN_HOUR * second)))
    assert last.growth_bytes_per_second == pytest.approx(PERCENT_AN_HOUR, rel=0.02)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80), st.booleans()), min_size=1, max_size=40),
    st.dictionaries(st.sampled_from(["logits", "logits_chunk", "sampler"]), st.integers(1, 10 * GIB)),
)
def test_any_history_gives_a_sane_assessment(history: list[tuple[int, int, bool]], allocations: dict[str, int]) -> None:
    """Chances lie in 0..1 and do not fall with the horizon; `predicted` state and alarm agree."""
    forecaster = DeviceForecaster(DeviceOptions(settle_seconds=120))
    for step, (total, free, up) in enumerate(history):
        reading = device(step * 30.0, total * GIB + 1, min(free, total) * GIB)
        seen = forecaster.observe(reading, allocations, serving=up)
        chances = [seen.probability[horizon] for horizon in sorted(seen.probability)]
        assert all(0 <= one <= 1 for one in chances)
        assert (seen.state == "predicted") == bool(seen.predicted)
        assert seen.time_to_exhaustion_seconds is None or seen.time_to_exhaustion_seconds >= 0
