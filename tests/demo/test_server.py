"""The embedded engine over HTTP."""

import time
from pathlib import Path

import httpx

from exporter.demo.engine import DemoEngine, EngineConfig
from exporter.demo.scheduler import Request
from exporter.demo.server import DemoServer
from exporter.demo.traffic import SCENARIOS
from exporter.sources.vllm import VllmSource


def test_it_answers_what_vllm_answers() -> None:
    """Metrics, models, version and health are served on a free port; anything else is vLLM's 404."""
    with DemoServer(speed=0) as server, httpx.Client(base_url=server.url) as client:
        page = client.get("/metrics")
        assert page.headers["content-type"].startswith("text/plain")
        assert "vllm:kv_cache_usage_perc" in page.text
        assert "process_start_time_seconds" in page.text
        assert client.get("/version").json() == {"version": "0.32.0"}
        assert client.get("/health").status_code == 200
        missing = client.get("/v2")
        assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})


def test_the_model_has_a_config_on_disk() -> None:
    """`/v1/models` names a directory with the config.json of the model whose pool is shown."""
    with DemoServer(speed=0) as server:
        source = VllmSource(server.url)
        (model,) = source.read_models()
        source.close()
    assert (model.id, model.max_model_len) == ("llama-3.1-8b", 16384)
    assert (Path(model.root or "") / "config.json").is_file()


def test_the_exporter_reads_every_engine_of_it() -> None:
    """Two engines of one server are two readings."""
    engines = [DemoEngine(EngineConfig(engine=label), [Request(0.0, 100, 50)]) for label in ("0", "1")]
    with DemoServer(engines, speed=0) as server:
        server.advance(0.5)
        source = VllmSource(server.url)
        readings = source.read().engines
        source.close()
    assert [(reading.engine, reading.running) for reading in readings] == [("0", 1.0), ("1", 1.0)]


def test_it_runs_at_its_pace() -> None:
    """Engine time goes on by itself at the speed asked for, and stops when closed."""
    with DemoServer([DemoEngine(arrivals=SCENARIOS["calm"].requests(seed=1))], speed=50) as server:
        deadline = time.monotonic() + 20
        while server.now() < 10 and time.monotonic() < deadline:
            time.sleep(0.01)
    ended = server.now()
    assert ended >= 10
    assert server.engines[0].tally.generation_tokens > 100
    time.sleep(0.05)
    assert server.now() == ended


def test_it_waits_for_its_reader() -> None:
    """With a bound on unread time, engine time stops until the page is read and then goes on as far again."""
    with DemoServer(speed=1000, unread_seconds=3.0) as server:
        for bound in (3.0, 6.0):
            deadline = time.monotonic() + 20
            while server.now() < bound and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.1)
            assert server.now() == bound
            httpx.get(server.url + "/metrics")


def test_it_closes_twice() -> None:
    """Closing again, or closing what never started, does no harm."""
    server = DemoServer(speed=0)
    server.close()
    with DemoServer() as running:
        running.close()
