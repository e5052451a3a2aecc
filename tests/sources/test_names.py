"""Names from a page, made fit to be kept and shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.engines import assemble
from exporter.sources.names import MAX_CHARACTERS, plain_text


@pytest.mark.parametrize(
    "name", ["", "0", "meta-llama/Llama-3.1-8B", "/models/a b", 'a"b\\c', "模型", "🦙", "x" * MAX_CHARACTERS]
)
def test_a_name_as_people_give_it_stays(name: str) -> None:
    """Whatever is printable and not overlong is vLLM's own value, so that series can be joined on it."""
    assert plain_text(name) == name


@pytest.mark.parametrize(
    "name", ["a\nb", "\x1b[2J", "\0", "\u202egnp.exe", "\u2028", "\x85", "\ud800", "x" * (MAX_CHARACTERS + 1)]
)
def test_a_hostile_name_becomes_harmless(name: str) -> None:
    """Control characters, marks of direction, separators of lines, halves of characters and endless names are gone."""
    shown = plain_text(name)
    assert shown.isprintable()
    assert len(shown) <= MAX_CHARACTERS
    assert plain_text(shown) == shown


@given(st.text(), st.text())
def test_two_names_stay_two(one: str, other: str) -> None:
    """No two names become one, however they are cut."""
    assert (plain_text(one) == plain_text(other)) == (one == other)


def test_names_that_begin_alike_stay_two() -> None:
    """Overlong names that differ at their end are told apart."""
    assert plain_text("x" * 10_000 + "a") != plain_text("x" * 10_000 + "b")


def test_engines_keep_their_readings_under_hostile_names() -> None:
    """Every label that says whose a series is, or which part, is made harmless, and an engine stays one."""
    labels = {"model_name": "m\x1b[2J", "engine": "0\n1", "ReplicaId": "r\u202e"}
    samples = [
        ("vllm:kv_cache_usage_perc", labels, 0.5),
        ("vllm:kv_cache_usage_perc", labels | {"ReplicaId": "other"}, 0.25),
        ("vllm:num_requests_waiting_by_reason", labels | {"reason": "why\0not"}, 2.0),
        ("vllm:cache_config_info", {"engine": "0\n1", "ReplicaId": "r\u202e", "block_size": "16"}, 1.0),
    ]
    hostile, _ = sorted(assemble(samples, 0.0), key=lambda reading: -(reading.kv_usage or 0))
    assert hostile.kv_usage == 0.5
    assert hostile.cache is not None
    assert hostile.cache.block_size == 16
    (reason,) = hostile.waiting_by_reason
    assert all(text.isprintable() for text in (hostile.model_name, hostile.engine, reason))


def test_reasons_are_bounded_in_number() -> None:
    """An engine that invents reasons to wait shows a few of them."""
    labels = {"model_name": "m", "engine": "0"}
    samples = [("vllm:num_requests_waiting_by_reason", labels | {"reason": str(n)}, 1.0) for n in range(1000)]
    (reading,) = assemble(samples, 0.0)
    assert len(reading.waiting_by_reason) == 16
