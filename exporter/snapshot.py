"""Everything one tick knew: what the metrics page, the status page and the terminal views are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.forecast.assessment import Assessment
from exporter.forecast.device import DeviceAssessment
from exporter.forecast.host import HostAssessment
from exporter.reading import DeviceReading, EngineReading, HostReading


@dataclass(frozen=True, slots=True)
class Capacity:
    """The KV pool of one engine. Bytes are of one tensor-parallel rank; `None` where nothing tells.

    `tokens` is the engine's own figure, found by `tokens_rule`; `analytic_…` is what the arithmetic gives for the
    same number of blocks.
    """

    tokens: int | None = None
    tokens_rule: str | None = None
    """`reported`, `max_concurrency`, `arithmetic` or `blocks`: the first that could be had, in this order."""
    usable_blocks: int | None = None
    bytes: int | None = None
    analytic_tokens: int | None = None
    analytic_bytes: int | None = None
    bytes_per_token: float | None = None
    bytes_per_block: int | None = None
    weight_bytes: int | None = None
    """The model's weights, estimated from its config."""
    doubled_gain: float | None = None
    """Tokens with twice the tensor-parallel ranks over now, estimated from the model's config."""
    max_model_len: int | None = None
    calibration_ratio: float | None = None
    calibration_cause: str | None = None
    """Why `calibration_ratio` is far from 1, as a sentence; `None` when it is not."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """What still fits into the pool now."""

    blocks: float | None = None
    tokens: float | None = None
    bytes: float | None = None
    requests: float | None = None
    """Typical requests of the present load."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One engine at one tick. `server` is its host and port where several servers are watched, else empty."""

    server: str
    reading: EngineReading
    capacity: Capacity
    headroom: Headroom
    used_blocks: float | None
    assessment: Assessment


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """One GPU at one tick."""

    reading: DeviceReading
    risk: DeviceAssessment


@dataclass(frozen=True, slots=True)
class HostStatus:
    """The container's memory at one tick."""

    reading: HostReading
    risk: HostAssessment


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How one source fared. `last_success` and the tick's `time` are of one clock."""

    source: str
    server: str
    up: bool
    reason: str
    """A bounded word: `ok`, or why it is down."""
    message: str
    duration_seconds: float | None = None
    last_success: float | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    """Concept → the metric name under which it was found."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One tick, whole. `time` is the monotonic clock's, `wall_time` the calendar's (Unix seconds)."""

    time: float
    wall_time: float
    duration_seconds: float
    ticks: int
    engines: tuple[EngineStatus, ...] = ()
    devices: tuple[DeviceStatus, ...] = ()
    host: HostStatus | None = None
    sources: tuple[SourceHealth, ...] = ()
