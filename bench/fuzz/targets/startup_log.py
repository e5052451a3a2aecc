"""vLLM's start-up log, as `plan --from-log` reads it, alone and beside a model."""

import functools
import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.fuzz.target import Target
from exporter.errors import InputError
from exporter.plan.arguments import Request, parse_arguments
from exporter.plan.log_report import explain_log
from tests.support.startup_logs import NEGATIVE, REFUSED, USAGE, V0, V1_ONE_LINE, V1_TWO_LINES

NUMBERS = (b"0", b"-0.06", b"1,024", b",", b"-", b"-,", b"9" * 400, b"9" * 5000, b"1.", b"\xd9\xa3", b"1e9")


@functools.cache
def requests() -> tuple[Request, ...]:
    """The log alone, and beside a model's config, which is what compares the two."""
    config = Path(__file__).parents[3] / "exporter" / "demo" / "model" / "config.json"
    alone = parse_arguments(["--from-log", "x"])
    beside = parse_arguments(["--from-log", "x", "--model-config", str(config), "--json"])
    return alone, beside


def check(data: bytes) -> None:
    """It is explained or refused; what is explained in JSON is JSON."""
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        file.write(data)
        file.flush()
        for request in requests():
            out = io.StringIO()
            try:
                explain_log(replace(request, from_log=Path(file.name)), out)
            except InputError:
                continue
            lines = out.getvalue().splitlines()
            assert all(line.isprintable() for line in lines), f"what no terminal should be sent: {lines}"
            if request.as_json:
                json.loads(out.getvalue(), parse_constant=_no_constant)


def _no_constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


def seeds() -> list[bytes]:
    """The logs of the tests, whole and line by line."""
    texts = (V1_TWO_LINES, V1_ONE_LINE, V0, REFUSED, NEGATIVE, USAGE)
    return [*(text.encode() for text in texts), *(line.encode() for text in texts for line in text.splitlines())]


TARGET = Target(
    name="startup_log",
    check=check,
    seeds=seeds,
    tokens=(
        *NUMBERS,
        *(number + b" GiB" for number in NUMBERS),
        *(
            b"\n|Available KV cache memory: |KV cache size: |Maximum concurrency for | tokens per request: |x".split(
                b"|"
            )
        ),
        *(b"model='|'|with config: |engine (v|0.32|tensor_parallel_size=|max_seq_len=|kv_cache_dtype=".split(b"|")),
        *(b"Graph capturing finished in | took |CUDA graph pool memory: |(actual), | (estimated)".split(b"|")),
        *(b"Free memory on device (|/| on startup|is preempted by|num_preemptions=1|enforce_eager=True".split(b"|")),
        *(b"estimated maximum model length is | KV cache is needed|# GPU blocks: |total_gpu_memory (".split(b"|")),
    ),
    longest=8192,
)
