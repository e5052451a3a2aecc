import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web import words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (7.4, "7 s"), (41.5, "40 s"), (88, "90 s"), (97.4, "95 s"), (100, "2 min"), (2460, "41 min")],
)
def test_durations_are_as_precise_as_a_forecast(seconds: float, said: str) -> None:
    """A duration is told in one unit and no finer than anyone could foresee it."""
    assert words.about(seconds) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KiB"),
        (2**30, "1.0 GiB"),
        (5e15, "4547 TiB"),
        (999 * 2**20, "999 MiB"),
        (1000 * 2**20, "1.0 GiB"),
        (-(2**20), "−1.0 MiB"),
    ],
)
def test_sizes_have_few_digits(value: float | None, said: str) -> None:
    """Bytes are told in the binary unit that keeps them short."""
    assert words.size(value) == said


@given(ratio=st.floats(0, 1))
def test_only_nothing_is_nothing_and_only_all_is_all(ratio: float) -> None:
    """A share that is not quite 0 or 1 is never said to be 0 % or 100 %."""
    said = words.percent(ratio)
    assert (said == "0 %") == (ratio == 0)
    assert (said == "100 %") == (ratio == 1)


def test_numbers_stay_with_their_units() -> None:
    """No line breaks between a number and its unit, and nothing else is tied."""
    tied = words.unbroken("in about 40 s; 58 % of 16.0 GiB and 12 requests in 5 min")
    assert tied == "in about 40\u00a0s; 58\u00a0% of 16.0\u00a0GiB and 12 requests in 5\u00a0min"


@pytest.mark.parametrize(
    ("value", "said"), [(None, "–"), (0, "0"), (0.02, "0.02"), (1.44, "1.4"), (33.3, "33"), (12345.0, "12,345")]
)
def test_rates_are_short(value: float | None, said: str) -> None:
    """A rate is told in two digits, or whole from ten on."""
    assert words.rate(value) == said


def test_counts_and_ages_and_growth() -> None:
    """Counts have separators, ages say when, growth says steady where it is none."""
    assert [words.count(n) for n in (None, 131072.0, 2_500_000)] == ["–", "131,072", "2.50 M"]
    assert [words.ago(n) for n in (None, 0.4, 40)] == ["never", "just now", "40 s ago"]
    assert [words.growth(n) for n in (None, 0, 346_000)] == [
        "not watched for long enough",
        "steady",
        "+1.2 GiB an hour",
    ]
    assert [words.plural(n, "request") for n in (0, 1, 2)] == ["0 requests", "1 request", "2 requests"]
