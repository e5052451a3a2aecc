"""The table of agreement in docs/arithmetic.md is what the code computes now, and good enough."""

import statistics

from bench.arithmetic_agreement import DOCUMENT, reference, starts, written


def test_the_table_is_current() -> None:
    """Measuring again changes nothing in the document."""
    document = DOCUMENT.read_text(encoding="utf-8")
    assert written(document) == document


def test_every_reference_figure_is_exact() -> None:
    """No case of the reference disagrees in any figure of the pool."""
    assert all(right == stated for name, right, stated in reference() if name != "weight parameters")


def test_available_kv_is_within_five_percent_at_the_median() -> None:
    """Over every logged start whose model is known, with no figure of the log used."""
    errors = [abs(row["kv"]) for row in starts() if row["kv"] is not None]
    assert len(errors) >= 20
    assert statistics.median(errors) <= 0.05


def test_tokens_follow_from_logged_bytes_within_half_a_percent() -> None:
    """On every start of a uniform model."""
    errors = [abs(row["tokens"]) for row in starts() if row["tokens"] is not None]
    assert len(errors) >= 10
    assert max(errors) <= 0.005
