"""Under which names vLLM has ever shown what we read, from 0.6 (V0) to 0.32.

Names are written without prefix, `_total`, `_bucket`, `_sum` and `_count`, newest first. A page may show an old and a
new name at once (0.9 and 0.10 did): the newest counts, once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from typing import NamedTuple

PREFIXES = ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_")
"""vLLM's own; sanitised as OpenTelemetry wants it; the same two as Ray Serve exports them."""

PROCESS_START = "process_start_time_seconds"
"""The one line that is not vLLM's: when the process behind the page began (absent in multiprocess mode)."""


class Kind(Enum):
    """How several series of one concept on one engine become one value."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    TOTALS = "totals"
    """A histogram of which the sum and the count are wanted and the buckets are not."""
    SLEEP = "sleep"
    INFO = "info"


class Part(StrEnum):
    """Which number of its concept a line holds."""

    VALUE = ""
    BUCKET = "_bucket"
    SUM = "_sum"
    COUNT = "_count"


@dataclass(frozen=True, slots=True)
class Concept:
    """One thing vLLM tells, named after the field of `EngineReading` that holds it.

    With `split_by`, the series are told apart by that label and the field is a mapping; with `only`, just the
    series whose label has that value counts. With `at_most`, a larger value is no reading.
    """

    field: str
    kind: Kind
    names: tuple[str, ...]
    split_by: str | None = None
    only: tuple[str, str] | None = None
    at_most: float | None = None

    @property
    def highest_counts(self) -> bool:
        """Of what several front-ends tell of one engine, the highest value counts; where not, they add up."""
        return self.kind in (Kind.GAUGE, Kind.SLEEP)


CONCEPTS = (
    # gpu_cache_usage_perc: V0 and V1 up to 0.10; both from 0.9; the old one hidden in 0.11 and gone after.
    Concept("kv_usage", Kind.GAUGE, ("kv_cache_usage_perc", "gpu_cache_usage_perc"), at_most=1.0),
    Concept("running", Kind.GAUGE, ("num_requests_running",)),
    Concept("waiting", Kind.GAUGE, ("num_requests_waiting",)),
    Concept("waiting_by_reason", Kind.GAUGE, ("num_requests_waiting_by_reason",), split_by="reason"),
    # V0 swapped to the CPU; V1 recomputes and has neither.
    Concept("swapped", Kind.GAUGE, ("num_requests_swapped",)),
    Concept("cpu_kv_usage", Kind.GAUGE, ("cpu_cache_usage_perc",), at_most=1.0),
    Concept("sleep_state", Kind.SLEEP, ("engine_sleep_state",), split_by="sleep_state"),
    Concept("kv_capacity_bytes", Kind.GAUGE, ("kv_cache_capacity_bytes",)),
    # Reasons are younger than 0.32; where only they are told, together they are the total.
    Concept("preemptions", Kind.COUNTER, ("num_preemptions", "num_preemptions_by_reason")),
    Concept(
        "preemptions_kv_full",
        Kind.COUNTER,
        ("num_preemptions_by_reason", "num_preemptions"),
        only=("reason", "kv_full"),
    ),
    Concept("prompt_tokens", Kind.COUNTER, ("prompt_tokens",)),
    Concept("prompt_tokens_cached", Kind.COUNTER, ("prompt_tokens_cached",)),
    Concept("generation_tokens", Kind.COUNTER, ("generation_tokens",)),
    Concept("finished", Kind.COUNTER, ("request_success",)),
    Concept("finished_by_reason", Kind.COUNTER, ("request_success",), split_by="finished_reason"),
    # gpu_prefix_cache_*: V1 up to 0.10, at first in blocks, later in tokens. Their ratio means the same.
    Concept("prefix_queries", Kind.COUNTER, ("prefix_cache_queries", "gpu_prefix_cache_queries")),
    Concept("prefix_hits", Kind.COUNTER, ("prefix_cache_hits", "gpu_prefix_cache_hits")),
    # A histogram whose own name ends in _total.
    Concept("iteration_tokens", Kind.TOTALS, ("iteration_tokens_total",)),
    Concept("first_tokens", Kind.TOTALS, ("time_to_first_token_seconds",)),
    Concept("prompt_lengths", Kind.HISTOGRAM, ("request_prompt_tokens",)),
    Concept("generation_lengths", Kind.HISTOGRAM, ("request_generation_tokens",)),
    Concept("max_tokens_params", Kind.HISTOGRAM, ("request_params_max_tokens",)),
    Concept("max_generation_lengths", Kind.TOTALS, ("request_max_num_generation_tokens",)),
    Concept("request_preemptions", Kind.TOTALS, ("request_num_preemptions",)),
    Concept("prefill_computed_tokens", Kind.TOTALS, ("request_prefill_kv_computed_tokens",)),
    Concept("cache", Kind.INFO, ("cache_config_info",)),
)


class Place(NamedTuple):
    """Where a sample of a given name belongs: its concept, which part of it, how old the name is (0 = newest)."""

    concept: Concept
    part: Part
    rank: int
    apart: str | None
    """The label that tells apart what must stay apart within the concept: a bucket's bound, a reason."""


@cache
def places(prefixes: tuple[str, ...]) -> Mapping[str, tuple[Place, ...]]:
    """Every sample name that is read, with `prefixes` in the order in which they are preferred."""
    found: dict[str, tuple[Place, ...]] = {}
    for concept in CONCEPTS:
        for age, name in enumerate(concept.names):
            for preference, prefix in enumerate(prefixes):
                rank = age * len(prefixes) + preference
                for spelling, part in _spellings(name, concept.kind):
                    full = prefix + spelling
                    apart = "le" if part is Part.BUCKET else concept.split_by
                    found[full] = (*found.get(full, ()), Place(concept, part, rank, apart))
    return found


def _spellings(name: str, kind: Kind) -> tuple[tuple[str, Part], ...]:
    match kind:
        case Kind.COUNTER:
            return (name, Part.VALUE), (f"{name}_total", Part.VALUE)
        case Kind.HISTOGRAM:
            return tuple((name + part.value, part) for part in (Part.BUCKET, Part.SUM, Part.COUNT))
        case Kind.TOTALS:
            return tuple((name + part.value, part) for part in (Part.SUM, Part.COUNT))
        case _:
            return ((name, Part.VALUE),)


def plain_name(sample_name: str, part: Part) -> str:
    """The name as people know it: a histogram's without `_bucket`, `_sum` or `_count`."""
    return sample_name.removesuffix(part.value)
