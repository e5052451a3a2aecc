"""A recording: replayed as `replay` does, plain or compressed."""

import gzip
import itertools
import math
import tempfile
from pathlib import Path

from bench.fuzz.mutation import json_mutator
from bench.fuzz.target import Target
from bench.fuzz.targets.page import possible
from exporter.errors import InputError
from exporter.replay import assessments, line_of
from exporter.sources.recording import Recording

READINGS = 12
RECORDINGS = Path(__file__).parents[3] / "tests" / "data" / "forecast"
KEYS = ("meta", "t", "s", "events", "engine", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "watermark")


def check(data: bytes) -> None:
    """It is replayed, or refused with an `InputError`; every probability is one."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl.gz" if data.startswith(b"\x1f\x8b") else ".jsonl") as file:
        file.write(data)
        file.flush()
        replayed(Recording(Path(file.name)))


def replayed(recording: Recording) -> None:
    """What `backtest` and `replay` do with the first readings."""
    for _, engines in itertools.islice(recording.readings(), READINGS):
        for engine in engines:
            possible(engine)
    for event in recording.events():
        assert math.isfinite(event.time)
    for assessment in itertools.islice(assessments(recording), READINGS):
        for probability in assessment.probability.values():
            assert 0 <= probability <= 1
        line_of(assessment, 60.0)


def seeds() -> list[bytes]:
    """The first lines of the recorded runs, with an account of preemptions, and one of them compressed."""
    found = []
    for path in sorted(RECORDINGS.glob("*.jsonl.gz")):
        with gzip.open(path, "rb") as lines:
            head = list(itertools.islice(lines, 4))
        if sum(map(len, head)) <= 32_768:
            found.append(b"".join(head) + b'{"events":[[12.5,1]]}\n')
    small = b'{"meta":{"engine":{"max_num_seqs":8}}}\n{"t":1,"s":{"vllm:num_requests_running{engine=\\"0\\"}":3}}\n'
    return [*found, small, gzip.compress(small, mtime=0)]


TARGET = Target(
    name="recording",
    check=check,
    seeds=seeds,
    tokens=(*(f'"{key}":'.encode() for key in KEYS), b"\x1f\x8b\x08", b"\\", b'{engine=\\"0\\"}', b"NaN", b"Infinity"),
    mutate=json_mutator(KEYS, lines=True),
    allowed=(InputError,),
    longest=32_768,
)
