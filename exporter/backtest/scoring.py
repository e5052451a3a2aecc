"""Scoring forecasts and alarms against the preemptions that came: the definitions behind every figure.

Of one engine's series of (time, probability, alarm):

- onset: the first preemption after 60 s without one, the first 65 s of the record left out.
- skill: 1 − Brier / Brier of always saying the base rate, over every second with 90 s of record after it.
- auc: area under the ROC curve of the probability over seconds not within 60 s after a preemption; a second
  between 60 and 90 s before one is neither.
- w15@1, w15@3: share of onsets for which the probability stayed at or above x for 3 readings between 60 and 15 s
  before, with the lowest x that keeps calm seconds above it within 1 % (3 %).
- recall: onsets with the alarm on for 3 readings in the 60 s before; warned15: the same until 15 s before.
- precision: alarm episodes (edges less than 10 s apart merged) with a preemption before 60 s after their end, at
  most 180 s after their start. calm: share of calm seconds with the alarm on. flaps: episodes per hour.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

HORIZON, EARLY, HELD, MERGE = 60.0, 15.0, 3, 10.0

Point = tuple[float, float, bool]
"""Seconds, probability, alarm."""


@dataclass(slots=True)
class Counts:
    """Raw counts of one record and one detector; they add up over records."""

    onsets: int = 0
    recalled: int = 0
    early: int = 0
    leads: list[float] = field(default_factory=list)
    episodes: int = 0
    true_episodes: int = 0
    calm: int = 0
    calm_on: int = 0
    hours: float = 0.0
    squares: list[tuple[float, bool]] = field(default_factory=list)
    ranked: list[tuple[float, bool]] = field(default_factory=list)
    early_peaks: list[float] = field(default_factory=list)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))


@dataclass(frozen=True, slots=True)
class Score:
    """The figures; `None` where there is nothing to divide by."""

    onsets: int
    skill: float | None
    auc: float | None
    w15_at_1: float | None
    w15_at_3: float | None
    recall: float | None
    warned15: float | None
    lead_p50: float | None
    precision: float | None
    calm: float | None
    flaps: float | None


def onsets_of(events: Sequence[float]) -> list[float]:
    """The first preemption of each episode, in seconds."""
    return [e for n, e in enumerate(events) if e >= HORIZON + 5 and (n == 0 or e - events[n - 1] >= HORIZON)]


def episodes_of(series: Sequence[Point]) -> list[tuple[float, float]]:
    """(start, end) of the alarm's episodes, those less than `MERGE` seconds apart merged."""
    found: list[tuple[float, float]] = []
    for time, _, alarm in series:
        if alarm and found and time - found[-1][1] <= MERGE:
            found[-1] = (found[-1][0], time)
        elif alarm:
            found.append((time, time))
    return found


def count(series: Sequence[Point], events: Sequence[float]) -> Counts:
    """Raw counts of one detector on one record; `events` are the times of preemptions, rising."""
    counts = Counts()
    if not series:
        return counts
    end = series[-1][0]
    counts.hours = (end - series[0][0]) / 3600
    _count_onsets(counts, series, events)
    for start, last in episodes_of(series):
        if start <= end - HORIZON:
            counts.episodes += 1
            counts.true_episodes += _ahead(events, start) <= min(last - start + HORIZON, 180.0)
    for time, probability, alarm in series:
        if time > end - 1.5 * HORIZON:
            break
        ahead, behind = _ahead(events, time), _behind(events, time)
        came = ahead <= HORIZON
        counts.squares.append(((min(1.0, max(0.0, probability)) - came) ** 2, came))
        if behind > HORIZON and (came or ahead > 1.5 * HORIZON):
            counts.ranked.append((probability, came))
            if not came:
                counts.calm += 1
                counts.calm_on += alarm
    return counts


def _count_onsets(counts: Counts, series: Sequence[Point], events: Sequence[float]) -> None:
    times = [time for time, _, _ in series]
    held = [
        (min(p for _, p, _ in last), all(a for _, _, a in last))
        for last in (series[max(0, k - HELD + 1) : k + 1] for k in range(len(series)))
    ]
    for onset in onsets_of(events):
        first, early, now = (bisect.bisect_left(times, onset - back) for back in (HORIZON, EARLY, 0.0))
        counts.onsets += 1
        counts.early_peaks.append(max((p for p, _ in held[first : early + 1]), default=0.0))
        on = [times[k] for k in range(first, now) if held[k][1]]
        if on:
            counts.recalled += 1
            counts.leads.append(onset - on[0])
            counts.early += on[0] <= onset - EARLY


def score(counts: Counts) -> Score:
    """The figures of counts."""
    seconds = max(1, len(counts.squares))
    base = sum(came for _, came in counts.squares) / seconds
    brier = sum(square for square, _ in counts.squares) / seconds
    leads = sorted(counts.leads)
    return Score(
        onsets=counts.onsets,
        skill=1 - brier / (base * (1 - base)) if 0 < base < 1 else None,
        auc=_auc(counts.ranked),
        w15_at_1=_warned_at(counts, 0.01),
        w15_at_3=_warned_at(counts, 0.03),
        recall=_ratio(counts.recalled, counts.onsets),
        warned15=_ratio(counts.early, counts.onsets),
        lead_p50=leads[len(leads) // 2] if leads else None,
        precision=_ratio(counts.true_episodes, counts.episodes),
        calm=_ratio(counts.calm_on, counts.calm),
        flaps=_ratio(counts.episodes, counts.hours),
    )


def _ahead(events: Sequence[float], time: float) -> float:
    k = bisect.bisect_right(events, time)
    return events[k] - time if k < len(events) else math.inf


def _behind(events: Sequence[float], time: float) -> float:
    k = bisect.bisect_right(events, time)
    return time - events[k - 1] if k else math.inf


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _auc(ranked: list[tuple[float, bool]]) -> float | None:
    positive = sum(came for _, came in ranked)
    negative = len(ranked) - positive
    if not positive or not negative:
        return None
    rank, ordered, k = 0.0, sorted(ranked), 0
    while k < len(ordered):
        last = k
        while last < len(ordered) and ordered[last][0] == ordered[k][0]:
            last += 1
        rank += sum(came for _, came in ordered[k:last]) * ((k + 1 + last) / 2)
        k = last
    return (rank - positive * (positive + 1) / 2) / (positive * negative)


def _warned_at(counts: Counts, calm_share: float) -> float | None:
    calm = sorted((p for p, came in counts.ranked if not came), reverse=True)
    if not calm or not counts.early_peaks:
        return None
    k = int(calm_share * len(calm))
    cut = calm[k] if k < len(calm) else -math.inf
    return sum(p > cut for p in counts.early_peaks) / len(counts.early_peaks)
