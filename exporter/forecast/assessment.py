"""What the forecast says of one engine at one reading."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.kv.demand import RequestDemand

State = Literal["ok", "watch", "predicted", "exhausted", "stalled", "asleep", "unknown"]
Driver = Literal["long_context", "burst_concurrency", "prefill_spike", "mixed", "sequence_cap", "none"]


@dataclass(frozen=True, slots=True)
class PoolView:
    """The pool as the forecast needs it: usable blocks (the null block left out) and what a request holds of them."""

    usable_blocks: int
    demand: RequestDemand


@dataclass(frozen=True, slots=True)
class ForecastOptions:
    """What a user may know that the page does not tell, and how the forecast is asked.

    Horizons in seconds; `page_horizon` is the one the alarm speaks of. A limit that is `None` is inferred
    from the readings where that is possible.
    """

    horizons: tuple[float, ...] = (15.0, 30.0, 60.0, 120.0)
    quantiles: tuple[float, ...] = (0.5, 0.9)
    page_horizon: float = 60.0
    seed: int = 0
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    watermark: float = 0.0


@dataclass(frozen=True, slots=True)
class Assessment:
    """One engine's KV risk. What is not known is `None` or an empty mapping, never zero."""

    time: float
    model_name: str
    engine: str
    state: State
    reason: str
    """The rule behind `state`, as a sentence for people."""
    probability: Mapping[float, float] = field(default_factory=dict)
    """P(at least one preemption for want of KV within the horizon), by horizon in seconds; empty = abstains."""
    predicted: bool | None = None
    time_to_exhaustion_seconds: float | None = None
    demand_ratio: Mapping[tuple[float, float], float] = field(default_factory=dict)
    """(horizon, quantile) → KV the present load will hold, over capacity; may exceed 1."""
    offered_load_ratio: float | None = None
    driver: Driver | None = None
    levers: Mapping[str, float] = field(default_factory=dict)
    preemptions_per_second: float | None = None
    preemptions_per_finished_request: float | None = None
    recomputed_tokens_per_second: float | None = None
    used_ratio_peak: float | None = None
    blocks_per_request: float | None = None
    """Blocks a typical request of the present load holds at its end."""
    forecasts: Mapping[str, int] = field(default_factory=dict)
    """The forecast's own score so far: hit, miss, false_alarm, correct_quiet."""
    calibration_error: float | None = None
