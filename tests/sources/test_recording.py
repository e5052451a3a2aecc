"""Recordings read back as the readings a live page would have given."""

import gzip
import json
from pathlib import Path

import pytest

from exporter.errors import InputError
from exporter.sources.recording import Event, Recording, parse_series

DATA = Path(__file__).parent.parent / "data" / "forecast"
REAL = DATA / "real-cpu-burst.jsonl.gz"


def written(path: Path, *records: object) -> Path:
    with gzip.open(path, "wt") as lines:
        lines.writelines(json.dumps(record) + "\n" for record in records)
    return path


def test_a_real_recording_is_read_whole() -> None:
    """Every scrape of a real server's recording gives its engine, and the events are the truth beside them."""
    recording = Recording(REAL)
    scrapes = list(recording.readings())
    assert recording.meta()["name"] == "real-cpu-burst"
    assert len(scrapes) == 64
    assert all(len(engines) == 1 for _, engines in scrapes)
    assert recording.events() == (Event(19.293, 2), Event(32.475, 6))


def test_a_reading_carries_what_did_not_change() -> None:
    """Only changed series stand on a line; the rest keep their last value."""
    first, last = (engines[0] for _, engines in (list(Recording(REAL).readings())[k] for k in (0, -1)))
    assert first.cache == last.cache
    assert first.time == 0.0
    assert (last.generation_tokens or 0.0) > (first.generation_tokens or 0.0)


def test_series_names_are_taken_apart() -> None:
    """Labels may hold quotes, backslashes, commas and braces."""
    assert parse_series("vllm:x") == ("vllm:x", {})
    assert parse_series(r'vllm:x{a="1",b="q\"u,}\\e"}') == ("vllm:x", {"a": "1", "b": 'q"u,}\\e'})


def test_plain_files_are_read_too(tmp_path: Path) -> None:
    """A recording need not be compressed, nor start with a line about itself."""
    path = tmp_path / "plain.jsonl"
    path.write_text('{"t": 1.5, "s": {"vllm:num_requests_running{engine=\\"0\\",model_name=\\"m\\"}": 2}}\n')
    recording = Recording(path)
    ((time, (reading,)),) = recording.readings()
    assert (time, reading.running, reading.model_name) == (1.5, 2.0, "m")
    assert recording.meta() == {}
    assert recording.events() == ()
    assert recording.name == "plain"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not json\n", "line 1 is not JSON"),
        (b"[1]\n", "line 1 is not a JSON object"),
        (b'{"s": {"a": 1}}\n', "cannot be read"),
        (b'{"t": 1, "s": {"a": "x"}}\n', "cannot be read"),
        (b"\xff\xfe\n", "cannot be read"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    """What is no recording is refused in one sentence with the file's name."""
    path = tmp_path / "broken.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        list(Recording(path).readings())
    assert str(path) in str(caught.value)


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    """A download that broke off is told, not half used in silence."""
    path = tmp_path / "half.jsonl.gz"
    path.write_bytes(REAL.read_bytes()[:4000])
    with pytest.raises(InputError, match="cannot be read after line"):
        list(Recording(path).readings())


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    """The path and the fault stand in the message."""
    with pytest.raises(InputError, match="no such recording"):
        list(Recording(tmp_path / "none.jsonl.gz").readings())
    with pytest.raises(InputError, match="directory"):
        list(Recording(tmp_path).readings())
