"""What the forecast sees of a recording, reading by reading, kept so that many questions can be asked of one replay.

What comes after the roll-outs (recalibration, experience, alarm) is done by the forecast's own parts, without rolling
again: roll-outs do not depend on it.
"""

import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from exporter.backtest.scoring import Counts, Score, count, score
from exporter.forecast.alarm import NEAR_SECONDS, Alarm
from exporter.forecast.experience import Experience
from exporter.forecast.forecaster import EngineForecaster, time_to_exhaustion
from exporter.forecast.recalibration import FITTED, Evidence, log_odds, probability
from exporter.replay import options_of, pool_in
from exporter.sources.recording import Recording

HORIZON = 60.0
RIDGE = 1e-3
Floats = np.ndarray


@dataclass(frozen=True, slots=True)
class Trace:
    """One recording, by reading: what the logistic saw (`None`: it abstained), and whether preemptions were told of."""

    name: str
    times: Floats
    usage: tuple[float | None, ...]
    evidence: tuple[Evidence | None, ...]
    preempted: tuple[bool, ...]
    events: tuple[float, ...]
    """The true preemptions."""
    milliseconds: float
    """CPU time per reading, the recording's parsing included."""

    def known(self) -> Floats:
        """The places of the readings with evidence."""
        return np.array([k for k, seen in enumerate(self.evidence) if seen is not None], dtype=int)

    def features(self, horizon: float) -> Floats:
        """The terms of the logistic at those places, without the constant."""
        return np.array([seen.features(horizon)[1:] for seen in self.evidence if seen is not None]).reshape(-1, 6)

    def came(self, horizon: float) -> Floats:
        """For each reading, whether requests were preempted within `horizon` seconds."""
        following = np.searchsorted(self.events, self.times, side="right")
        until = np.append(self.events, np.inf)[following] - self.times
        return np.asarray(until <= horizon, dtype=float)


@dataclass(frozen=True, slots=True)
class Said:
    """What the forecast said at one reading."""

    time: float
    probability: float
    alarm: bool
    seconds: float | None


def traces(
    directory: Path,
    names: Sequence[str] = (),
    seconds: float | None = None,
    interval: float | None = None,
    jobs: int = 1,
) -> list[Trace]:
    """Replay the recordings of a directory, or those named, or their first `seconds`; or what a file has kept of it."""
    if directory.is_file():
        kept: list[Trace] = pickle.loads(directory.read_bytes())
        return [trace for trace in kept if not names or trace.name in names]
    paths = [p for p in sorted(directory.glob("*.jsonl.gz")) if not names or Recording(p).name in names]
    if jobs == 1:
        return [traced(path, seconds, interval) for path in paths]
    with Pool(jobs) as pool:
        return pool.map(partial(traced, seconds=seconds, interval=interval), paths, chunksize=1)


def keep(seen: Sequence[Trace], file: Path) -> None:
    """Write traces down, for `traces` to read."""
    file.write_bytes(pickle.dumps(list(seen), -1))


def traced(path: Path, seconds: float | None = None, interval: float | None = None) -> Trace:
    """Replay one recording."""
    recording = Recording(path)
    options = options_of(recording.meta())
    forecaster = EngineForecaster(options)
    times, usage, seen, preempted, before = [], [], [], [], None
    started, due = time.process_time(), float("-inf")
    for at, engines in recording.readings():
        if seconds is not None and at > seconds:
            break
        if interval is not None and at < due - 1e-6:
            continue
        due = at + (interval or 0.0)
        for reading in engines:
            forecaster.observe(reading, pool_in(reading, options.max_model_len))
            times.append(at)
            usage.append(reading.kv_usage)
            seen.append(forecaster.evidence)
            preempted.append(before is not None and (reading.preemptions or 0.0) > before)
            before = reading.preemptions or 0.0
    spent = 1e3 * (time.process_time() - started) / max(1, len(times))
    last = times[-1] if times else 0.0
    events = tuple(event.time for event in recording.events() if event.time <= last)
    return Trace(recording.name, np.array(times), tuple(usage), tuple(seen), tuple(preempted), events, spent)


def verdicts(trace: Trace) -> list[Said]:
    """What the forecaster says at every reading, by its own parts: 0 and no alarm where it abstains."""
    experience, alarm, preempted_at, found = Experience(HORIZON), Alarm(), float("-inf"), []
    for k, seen in enumerate(trace.evidence):
        at = float(trace.times[k])
        preempted_at = at if trace.preempted[k] else preempted_at
        odds = {} if seen is None else log_odds(seen, sorted(FITTED))
        terms = () if seen is None else seen.features(HORIZON)
        experience.observe(at, odds.get(HORIZON), terms, trace.preempted[k])
        chances = {h: probability(logit + experience.shift) for h, logit in odds.items()}
        page = chances.get(HORIZON)
        on = alarm.observe(at, page, chances.get(NEAR_SECONDS), at - preempted_at)
        found.append(Said(at, page or 0.0, on, time_to_exhaustion(chances)))
    return found


def fitted(x: Floats, y: Floats) -> Floats:
    """Logistic regression with a small ridge on standardised features; (b0, b1, …) on the raw ones."""
    mean, spread = x.mean(axis=0), x.std(axis=0) + 1e-9
    a = np.column_stack([np.ones(len(x)), (x - mean) / spread])
    b = np.zeros(a.shape[1])
    ridge = RIDGE * len(x) * np.diag([0.0] + [1.0] * x.shape[1])
    for _ in range(15):
        p = 1 / (1 + np.exp(-np.clip(a @ b, -30, 30)))
        weight = np.maximum(p * (1 - p), 1e-6)
        b = b + np.linalg.solve(a.T @ (a * weight[:, None]) + ridge, a.T @ (y - p) - ridge @ b)
    raw = b[1:] / spread
    return np.concatenate([[b[0] - (raw * mean).sum()], raw])


def coefficients(seen: Sequence[Trace], horizon: float) -> Floats:
    """Fitted on every reading whose outcome is recorded."""
    x, y = [], []
    for trace in seen:
        known = trace.known()
        kept = max(0, len(known) - round(1.5 * horizon))
        x.append(trace.features(horizon)[:kept])
        y.append(trace.came(horizon)[known[:kept]])
    return fitted(np.concatenate(x), np.concatenate(y))


def chances(trace: Trace, b: Floats, *, experience: bool) -> Floats:
    """Probability at every reading by coefficients `b`; 0 where the forecast abstains."""
    own, found = Experience(HORIZON), np.zeros(len(trace.times))
    for k, (at, seen, preempted) in enumerate(zip(trace.times, trace.evidence, trace.preempted, strict=True)):
        terms = () if seen is None else seen.features(HORIZON)
        odds = None if seen is None else float(np.dot(b, terms))
        if experience:
            own.observe(float(at), odds, terms, preempted)
        if odds is not None:
            found[k] = probability(odds + own.shift)
    return found


def pooled(seen: Sequence[Trace], said: Mapping[str, Floats]) -> Score:
    """The figures of a probability over all traces; those of an alarm are empty."""
    total = Counts()
    for trace in seen:
        series = [(float(t), float(p), False) for t, p in zip(trace.times, said[trace.name], strict=True)]
        total += count(series, trace.events)
    return score(total)


def figures(told: Score) -> str:
    """Skill, auc, w15@1 and w15@3 as cells of a table."""
    cells = (told.skill, told.auc, told.w15_at_1, told.w15_at_3)
    return " | ".join("–" if cell is None else f"{cell:.3f}" for cell in cells)
