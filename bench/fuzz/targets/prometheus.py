"""What a Prometheus server, or something in its place, answers to a query."""

import json

import httpx

from bench.fuzz.mutation import json_mutator
from bench.fuzz.target import Target
from bench.fuzz.targets.page import possible
from exporter.errors import InputError, SourceError
from exporter.sources.endpoint import Access, Endpoint
from exporter.sources.prometheus import History

START, END = 1_795_977_900.0, 1_795_978_000.0
METRIC = {"__name__": "vllm:num_requests_running", "engine": "0", "model_name": "m", "job": "j", "instance": "i:8000"}
KEYS = ("status", "data", "result", "resultType", "metric", "values", "value", "error", "__name__", "le", "engine")


def check(data: bytes) -> None:
    """Scrapes in order of time, or an error of ours; nothing that JSON can hold is anything else."""
    length = {"content-length": str(len(data))}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=length, stream=httpx.ByteStream(data)))
    endpoint = Endpoint("prometheus", "http://prometheus:9090", Access(body_limit_bytes=65_536), transport)
    before = START
    for scrape in History(endpoint).scrapes(START, END):
        assert before <= scrape.time <= END
        before = scrape.time
        for engine in scrape.engines:
            possible(engine)


def answer(*series: object) -> bytes:
    """What Prometheus sends."""
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}).encode()


def seeds() -> list[bytes]:
    """Answers with engines, without any, with a count, and a refusal."""
    values = [[START + second, str(second)] for second in range(1, 5)]
    cache = METRIC | {"__name__": "vllm:cache_config_info", "block_size": "16", "num_gpu_blocks": "1000"}
    bucket = METRIC | {"__name__": "vllm:request_prompt_tokens_bucket", "le": "+Inf"}
    return [
        answer({"metric": METRIC, "values": values}),
        answer(*({"metric": metric, "values": values} for metric in (METRIC, cache, bucket))),
        answer({"metric": {}, "value": [END, "1234"]}),
        answer(),
        b'{"status":"error","errorType":"bad_data","error":"parse error"}\n',
        b"[]",
        b"<html></html>",
    ]


TARGET = Target(
    name="prometheus",
    check=check,
    seeds=seeds,
    tokens=(*(f'"{key}":'.encode() for key in KEYS), b"NaN", b"Infinity", b'"NaN"', b'"+Inf"', b"1e400", b'"1_0"'),
    mutate=json_mutator(KEYS),
    allowed=(InputError, SourceError),
)
