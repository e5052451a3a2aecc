"""The status document: what `/api/v1/status` says, and what the page and the terminal views are drawn from.

Every key is always there; `null` means not known. Within version 1 keys may be added, never removed or changed.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from exporter.forecast.assessment import Driver, State

Ratios = tuple[float | None, ...]
SegmentKind = Literal[
    "weights", "kv_used", "kv_free", "kv_pool", "other", "server", "neighbours", "unattributed", "reserved", "free"
]
EvidenceKind = Literal["measured", "reported", "estimated"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to: is it all right."""

    state: Annotated[State, Field(description="the worst state of all that is watched")]
    sentence: Annotated[str, Field(description="the answer in one sentence")]
    detail: Annotated[str, Field(description="the rule behind it, or what else there is to say; may be empty")]


@dataclass(frozen=True, slots=True)
class Pool:
    """The KV pool of one engine and what is left of it."""

    capacity_tokens: Annotated[int | None, Field(description="tokens the pool holds")]
    capacity_tokens_rule: Annotated[
        str | None, Field(description="where that comes from: reported, max_concurrency, arithmetic or blocks")
    ]
    capacity_bytes: Annotated[int | None, Field(description="bytes of the pool on each tensor-parallel rank")]
    usable_blocks: Annotated[int | None, Field(description="blocks that requests can hold")]
    used_blocks: Annotated[float | None, Field(description="blocks held by live requests")]
    used_ratio: Annotated[float | None, Field(description="share of the pool held by live requests, 0..1")]
    used_ratio_peak: Annotated[float | None, Field(description="the highest share of the last 60 s, 0..1")]
    headroom_tokens: Annotated[float | None, Field(description="tokens that still fit")]
    headroom_requests: Annotated[float | None, Field(description="typical requests of the present load that still fit")]
    headroom_bytes: Annotated[float | None, Field(description="free bytes of the pool on each tensor-parallel rank")]
    headroom_blocks: Annotated[float | None, Field(description="free blocks")]
    offered_load_ratio: Annotated[
        float | None,
        Field(description="long-run demand of the present arrivals over capacity; above 1 is overload"),
    ]
    calibration_ratio: Annotated[
        float | None,
        Field(description="tokens the engine reports over what the arithmetic gives; near 1 when right"),
    ]


@dataclass(frozen=True, slots=True)
class Chance:
    """How likely the pool runs out within a horizon."""

    horizon_seconds: Annotated[float, Field(description="the horizon")]
    probability: Annotated[float, Field(description="of at least one preemption for want of KV within it, 0..1")]


@dataclass(frozen=True, slots=True)
class Demand:
    """The projection at one horizon and quantile."""

    horizon_seconds: Annotated[float, Field(description="the horizon")]
    quantile: Annotated[float, Field(description="0.5 is the median")]
    ratio: Annotated[float, Field(description="KV that the present load will hold then, over capacity; may exceed 1")]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of the pool."""

    predicted: Annotated[bool | None, Field(description="the alarm")]
    chances: Annotated[tuple[Chance, ...], Field(description="by horizon, rising; empty when the forecast abstains")]
    time_to_exhaustion_seconds: Annotated[
        float | None, Field(description="expected; null while no exhaustion is in sight")
    ]
    demand: Annotated[tuple[Demand, ...], Field(description="by horizon and quantile, rising")]
    driver: Annotated[Driver | None, Field(description="which load drives the risk")]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths in tokens of requests that have finished, since the engine started."""

    mean: Annotated[float | None, Field(description="mean")]
    p50_below: Annotated[float | None, Field(description="half of them were no longer than this bucket's bound")]
    p90_below: Annotated[float | None, Field(description="nine in ten were no longer than this bucket's bound")]


@dataclass(frozen=True, slots=True)
class Load:
    """What the engine is asked to do."""

    running: Annotated[float | None, Field(description="requests that run")]
    waiting: Annotated[float | None, Field(description="requests that wait")]
    waiting_by_reason: Annotated[dict[str, float], Field(description="the parts of `waiting`, where the engine tells")]
    held_tokens_per_request: Annotated[
        float | None, Field(description="KV tokens a running request holds on average (estimated)")
    ]
    prompt: Annotated[Lengths, Field(description="prompts")]
    output: Annotated[Lengths, Field(description="outputs")]
    max_model_len: Annotated[int | None, Field(description="the longest context the server allows")]
    preemptions_per_second: Annotated[float | None, Field(description="over the last minute")]
    preemptions_per_finished_request: Annotated[float | None, Field(description="over the last minutes")]
    recomputed_tokens_per_second: Annotated[
        float | None, Field(description="tokens computed again because of preemptions (estimated)")
    ]


@dataclass(frozen=True, slots=True)
class Lever:
    """What one change would do."""

    lever: Annotated[str, Field(description="its name, as in vllm_headroom_lever_gain_ratio")]
    gain_ratio: Annotated[float, Field(description="above 1 capacity grows, below 1 demand shrinks (estimated)")]
    effect: Annotated[str, Field(description="the gain in words")]
    flag: Annotated[str | None, Field(description="vLLM's flag")]
    cost: Annotated[str | None, Field(description="what it costs")]


@dataclass(frozen=True, slots=True)
class Score:
    """How the forecast has done so far."""

    hit: Annotated[int, Field(description="alarms that came true")]
    miss: Annotated[int, Field(description="exhaustions without an alarm")]
    false_alarm: Annotated[int, Field(description="alarms that did not come true")]
    correct_quiet: Annotated[int, Field(description="quiet times that stayed quiet")]
    calibration_error: Annotated[
        float | None, Field(description="how far probabilities were from what happened, over the last day")
    ]


@dataclass(frozen=True, slots=True)
class Past:
    """The window asked for, oldest point first; all arrays have one length."""

    window_seconds: Annotated[int, Field(description="how far back it goes")]
    seconds_ago: Annotated[tuple[float, ...], Field(description="age of each point at the last tick")]
    used_ratio: Annotated[Ratios, Field(description="the highest share of the pool in use")]
    preemptions: Annotated[tuple[int, ...], Field(description="preemptions since the point before")]
    running: Annotated[Ratios, Field(description="the most requests that ran")]
    waiting: Annotated[Ratios, Field(description="the most requests that waited")]


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine of one model."""

    server: Annotated[str, Field(description="host and port where several servers are watched, else empty")]
    model_name: Annotated[str, Field(description="vLLM's own label")]
    engine: Annotated[str, Field(description="vLLM's own label")]
    state: Annotated[State, Field(description="what its KV pool is doing")]
    sentence: Annotated[str, Field(description="that in one sentence")]
    reason: Annotated[str, Field(description="the rule behind the state")]
    pool: Annotated[Pool, Field(description="the pool and what is left")]
    forecast: Annotated[Forecast, Field(description="what is expected")]
    load: Annotated[Load, Field(description="what is asked of it")]
    levers: Annotated[tuple[Lever, ...], Field(description="what would help, the greatest gain first")]
    score: Annotated[Score | None, Field(description="the forecast's own score; null before the first outcome")]
    history: Annotated[Past, Field(description="where it came from")]


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a GPU's memory."""

    kind: Annotated[SegmentKind, Field(description="what it is")]
    bytes: Annotated[int, Field(description="its size")]
    evidence: Annotated[EvidenceKind, Field(description="by NVML, by the engine, or by arithmetic or difference")]


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one MIG slice."""

    gpu: Annotated[str, Field(description="NVML's index, and the slice's after a colon")]
    uuid: Annotated[str, Field(description="GPU-… or MIG-…")]
    name: Annotated[str | None, Field(description="the product")]
    total_bytes: Annotated[int | None, Field(description="its memory")]
    segments: Annotated[tuple[Segment, ...], Field(description="what the memory is used for; they add up to the total")]
    headroom_bytes: Annotated[float | None, Field(description="what the next allocation outside the pool can take")]
    growth_bytes_per_second: Annotated[float | None, Field(description="steady growth outside the pool")]
    probability: Annotated[float | None, Field(description="of running out within the longest horizon, 0..1")]
    predicted: Annotated[bool | None, Field(description="the alarm")]
    time_to_exhaustion_seconds: Annotated[float | None, Field(description="expected; null while none is in sight")]
    state: Annotated[State, Field(description="ok, watch, predicted or unknown")]
    reason: Annotated[str, Field(description="the rule behind the state")]


@dataclass(frozen=True, slots=True)
class Host:
    """The host memory of the server."""

    scope: Annotated[str, Field(description="whose memory it is: container, pod, process or machine")]
    used_bytes: Annotated[int | None, Field(description="what the kernel cannot take back")]
    limit_bytes: Annotated[int | None, Field(description="the limit; null when there is none")]
    headroom_bytes: Annotated[float | None, Field(description="bytes left below it")]
    growth_bytes_per_second: Annotated[float | None, Field(description="steady growth")]
    oom_kills: Annotated[int | None, Field(description="OOM kills seen since this monitor started")]
    probability: Annotated[float | None, Field(description="of an OOM kill within the longest horizon, 0..1")]
    predicted: Annotated[bool | None, Field(description="the alarm")]
    time_to_exhaustion_seconds: Annotated[float | None, Field(description="expected; null while none is in sight")]
    state: Annotated[State, Field(description="ok, watch, predicted or unknown")]
    reason: Annotated[str, Field(description="the rule behind the state")]


@dataclass(frozen=True, slots=True)
class Source:
    """How one source fares."""

    source: Annotated[str, Field(description="vllm, nvml, host, …")]
    server: Annotated[str, Field(description="host and port where several servers are watched, else empty")]
    up: Annotated[bool, Field(description="whether the last reading succeeded")]
    reason: Annotated[str, Field(description="ok, or a short word why not")]
    message: Annotated[str, Field(description="that as a sentence; may be empty")]
    duration_seconds: Annotated[float | None, Field(description="how long the last reading took")]
    age_seconds: Annotated[float | None, Field(description="since the last good reading; null before the first")]


@dataclass(frozen=True, slots=True)
class Status:
    """Everything the last tick knew."""

    version: Annotated[Literal[1], Field(description="version of this document")]
    exporter: Annotated[str, Field(description="version of vllm-headroom")]
    time: Annotated[float, Field(description="when the last tick ended, in Unix seconds")]
    age_seconds: Annotated[float, Field(description="how old that is when this is answered")]
    stale: Annotated[bool, Field(description="whether that is too old to be trusted")]
    verdict: Annotated[Verdict, Field(description="is it all right?")]
    engines: Annotated[tuple[Engine, ...], Field(description="every engine of every server")]
    devices: Annotated[tuple[Device, ...], Field(description="the server's GPUs")]
    host: Annotated[Host | None, Field(description="the server's host memory; null where it is not watched")]
    sources: Annotated[tuple[Source, ...], Field(description="where all this comes from")]
