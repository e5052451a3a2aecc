"""What preemption costs."""

import pytest

from exporter.forecast.toll import toll_of
from exporter.forecast.window import Window
from exporter.reading import EngineReading, Histogram


def reading(time: float, preemptions: float, finished: float, prompts: Histogram | None = None) -> EngineReading:
    return EngineReading(
        time, "m", "0", running=1.0, preemptions=preemptions, finished=finished, prompt_lengths=prompts
    )


def test_preemptions_are_counted_per_second_per_request_and_in_tokens() -> None:
    """Six preemptions and twelve finished requests in a minute, prompts of 500 tokens: 0.1/s, 0.5 each, 50 tokens/s."""
    window = Window()
    prompts = Histogram((), (), 50_000.0, 100.0)
    for second in range(0, 61, 10):
        window.add(reading(float(second), second / 10, second / 5, prompts))
    toll = toll_of(window)
    assert toll.preemptions_per_second == pytest.approx(0.1)
    assert toll.preemptions_per_finished_request == pytest.approx(0.5)
    assert toll.recomputed_tokens_per_second == pytest.approx(50.0)


def test_without_preemptions_nothing_is_computed_again() -> None:
    """Zero preemptions waste zero tokens, whatever is known of prompts."""
    window = Window()
    for second in range(0, 61, 10):
        window.add(reading(float(second), 3.0, second / 5))
    assert toll_of(window).recomputed_tokens_per_second == 0.0


def test_what_is_wasted_is_unknown_before_a_prompt_is_known() -> None:
    """Preemptions without any finished prompt to judge by give no figure."""
    window = Window()
    for second in range(0, 61, 10):
        window.add(reading(float(second), second / 10, 0.0))
    toll = toll_of(window)
    assert toll.recomputed_tokens_per_second is None
    assert toll.preemptions_per_finished_request is None
