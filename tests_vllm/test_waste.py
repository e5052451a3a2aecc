"""The ledger is the truth of other tests, so how it is added up is held to cases done by hand."""

from tests_vllm.waste import Event, preemptions, recomputed_tokens


def book(*lines: tuple[str, str, int]) -> list[Event]:
    return [Event(float(at), event, request, tokens) for at, (event, request, tokens) in enumerate(lines)]


def test_what_the_cache_gives_back_is_not_computed_again() -> None:
    """Preempted with 300 tokens and resumed with 64 of them cached, 236 are computed again."""
    seen = book(("preempted", "a", 300), ("resumed", "a", 64))
    assert (preemptions(seen), recomputed_tokens(seen)) == (1, 236)


def test_whoever_never_comes_back_computes_nothing_again() -> None:
    """A request that is aborted while it waits has lost its tokens, but nobody computes them."""
    assert recomputed_tokens(book(("preempted", "a", 300))) == 0


def test_a_second_preemption_half_way_back_counts_half_the_way() -> None:
    """Back at 100 of 300 when preempted again, then all the way from nothing: 100 and 300."""
    seen = book(("preempted", "a", 300), ("resumed", "a", 0), ("preempted", "a", 100), ("resumed", "a", 0))
    assert (preemptions(seen), recomputed_tokens(seen)) == (2, 400)


def test_what_came_after_the_way_back_is_new() -> None:
    """Preempted at 300, back and on to 350 before the next preemption: 300 again, then 350."""
    seen = book(("preempted", "a", 300), ("resumed", "a", 0), ("preempted", "a", 350), ("resumed", "a", 0))
    assert recomputed_tokens(seen) == 650
