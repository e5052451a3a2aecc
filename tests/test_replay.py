"""The `replay` command: the contract of its lines, and what it makes of real recordings."""

import json
from pathlib import Path

import pytest

from exporter.capacity import capacity_of, pool_of
from exporter.cli import main as cli
from exporter.errors import InputError
from exporter.forecast.forecaster import EngineForecaster
from exporter.reading import CacheConfig, EngineReading
from exporter.replay import assessments, line_of, main, options_of, pool_in
from exporter.sources.recording import Recording

DATA = Path(__file__).parent / "data" / "forecast"
REAL = DATA / "real-cpu-burst.jsonl.gz"
FULL = DATA / "a-sharegpt-4090.jsonl.gz"
KEYS = {"t", "engine", "probability", "predicted", "time_to_exhaustion_seconds", "state", "driver"}


def lines(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, object]]:
    assert main(argv) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_one_line_per_reading_with_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """Every reading of every engine gives one JSON object, null where the forecast abstains."""
    said = lines(capsys, str(REAL))
    assert len(said) == 64
    assert all(set(line) == KEYS for line in said)
    assert said[0]["probability"] is None
    assert all(line["probability"] is None or 0 <= float(str(line["probability"])) <= 1 for line in said)


def test_a_replay_is_deterministic(capsys: pytest.CaptureFixture[str]) -> None:
    """The same seed gives the same lines."""
    assert lines(capsys, str(REAL)) == lines(capsys, str(REAL))


def test_an_interval_thins_the_readings(capsys: pytest.CaptureFixture[str]) -> None:
    """`--interval 15` reads as a scrape every 15 s would."""
    said = lines(capsys, str(FULL), "--interval", "15")
    assert len(said) == 17
    assert [line["t"] for line in said][:3] == [0.0, 15.0, 30.0]


def test_a_pool_that_stays_exhausted_is_said_to_be() -> None:
    """Where requests queue for blocks all along, the probability is near 1 and the alarm stands."""
    said = [a for a in assessments(Recording(FULL)) if 30 <= a.time <= 150]
    chances = sorted(a.probability[60.0] for a in said)
    assert chances[len(chances) // 10] > 0.8
    assert sum(bool(a.predicted) for a in said) > 0.95 * len(said)


def test_a_replay_is_the_daemons_own_forecast() -> None:
    """Readings given to the forecaster one by one say the same as the command."""
    recording = Recording(REAL)
    options = options_of(recording.meta())
    forecaster = EngineForecaster(options)
    direct = [
        forecaster.observe(reading, pool_in(reading, options.max_model_len))
        for _, engines in recording.readings()
        for reading in engines
    ]
    assert [line_of(a, 60.0) for a in direct] == [line_of(a, 60.0) for a in assessments(recording)]


def test_a_hybrid_s_pool_is_what_the_engine_says_it_holds() -> None:
    """Where the engine states more tokens than blocks times block size, its own rate is taken, as in `run`."""
    cache = CacheConfig(block_size=16, num_gpu_blocks=1000, kv_cache_size_tokens=64_000)
    reading = EngineReading(time=0.0, model_name="m", engine="0", kv_usage=0.5, cache=cache)
    pool = pool_in(reading, 4096)
    assert pool is not None
    assert (pool.usable_blocks, pool.demand.blocks(6400)) == (999, 100)
    assert pool == pool_of(cache, capacity_of(cache, None, 4096), None)


def test_options_come_from_what_a_user_would_configure() -> None:
    """The recording's first line gives limits, never the recorder's own constants."""
    options = options_of(
        {"engine": {"max_num_seqs": 8, "watermark": 0.02, "step_t0": 1.0, "max_model_len": 4096}}, seed=3
    )
    assert (options.max_num_seqs, options.watermark, options.max_model_len, options.seed) == (8, 0.02, 4096, 3)


def test_wrong_use_is_told_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A missing file ends with exit code 2 and one line; a wrong interval is refused."""
    assert cli(["replay", str(tmp_path / "none.jsonl.gz")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(InputError, match="above 0"):
        main([str(REAL), "--interval", "0"])
