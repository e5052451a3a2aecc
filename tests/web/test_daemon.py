from time import monotonic, sleep

import httpx

from exporter.server import HttpServer, Request, Response
from tests.support.daemon import running

PAGE = """\
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1001"} 1.0
"""


def test_the_daemon_serves_page_and_document_with_a_past() -> None:
    """What `run` reads is on its page and in its document, and its past grows second by second."""

    def vllm(request: Request) -> Response:
        known = request.path == "/metrics"
        return Response(200, "text/plain; version=0.0.4", PAGE.encode()) if known else Response.text(404, "no")

    with HttpServer("127.0.0.1", 0, vllm) as server, running(server.url) as one:
        one.page(ticks=1)
        until = monotonic() + 30
        past: list[float] = []
        while len(past) < 3 and monotonic() < until:
            document = httpx.get(f"{one.daemon.url}/api/v1/status?window=60").json()
            past = document["engines"][0]["history"]["used_ratio"]
            sleep(0.05)
        assert past == [0.25, 0.25, 0.25]
        assert document["engines"][0]["pool"]["usable_blocks"] == 1000
        page = httpx.get(one.daemon.url + "/").text
        assert "750 of 1,000 blocks" in page


def test_a_server_that_goes_away_is_told_on_the_page() -> None:
    """When vLLM stops answering, the page says so, keeps the past, and the exporter stays well."""

    def vllm(_: Request) -> Response:
        return Response(200, "text/plain; version=0.0.4", PAGE.encode())

    with HttpServer("127.0.0.1", 0, vllm) as server, running(server.url) as one:
        one.page(ticks=1)
        server.close()
        until = monotonic() + 30
        state = ""
        while state != "unknown" and monotonic() < until:
            document = httpx.get(f"{one.daemon.url}/api/v1/status").json()
            state = document["verdict"]["state"] if not document["sources"][0]["up"] else ""
            sleep(0.05)
        assert "Not known:" in document["verdict"]["sentence"]
        assert document["engines"][0]["history"]["used_ratio"][0] == 0.25
        assert httpx.get(one.daemon.url + "/").status_code == 200
        assert httpx.get(one.daemon.url + "/readyz").status_code == 200
