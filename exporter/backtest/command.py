"""The `backtest` command: arguments, sources, verdict."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from exporter.backtest.replaying import FORECAST, History, Reading, replayed
from exporter.backtest.report import COLUMNS, report, shown
from exporter.backtest.scoring import Counts, Score, count, score
from exporter.errors import InputError, SourceError
from exporter.forecast.assessment import ForecastOptions
from exporter.replay import options_of, pool_in
from exporter.sources.recording import Recording

GOOD, BAD_NEWS = 0, 1


def main(argv: Sequence[str]) -> int:
    """Run `backtest`; 0 when the forecast reaches its bar, 1 when it does not."""
    args = _arguments(argv)
    if args.recording is not None:
        histories, source = _recorded(args.recording), str(args.recording)
    else:
        histories, source = _from_prometheus(args), args.prometheus
    scores = pooled(histories)
    bars = Bars(args.bar_recall, args.bar_precision, args.bar_calm)
    good, verdict = judge(scores[FORECAST], bars, preempted=any(history.events for history in histories))
    _print(histories, scores, verdict)
    if args.report is not None:
        try:
            args.report.write_text(report(histories, scores, verdict, source), encoding="utf-8")
        except OSError as error:
            raise InputError(f"--report {args.report}: cannot be written: {error.strerror}") from None
    return GOOD if good else BAD_NEWS


def pooled(histories: Sequence[History]) -> dict[str, Score]:
    """Every detector's figures over all engines together."""
    totals: dict[str, Counts] = {}
    for history in histories:
        for name, series in history.detectors.items():
            totals[name] = totals.get(name, Counts()) + count(series, history.events)
    return {name: score(counts) for name, counts in totals.items()}


@dataclass(frozen=True, slots=True)
class Bars:
    """Shares: of onsets warned of and of alarms that come true at least, of calm seconds in alarm at most."""

    recall: float = 0.5
    precision: float = 0.5
    calm: float = 0.05


def judge(told: Score, bars: Bars, preempted: bool) -> tuple[bool, str]:
    """Whether the forecast reaches its bar on this history, and the sentence that says so."""
    recall, precision, calm = bars.recall, bars.precision, bars.calm
    faults = []
    if told.recall is not None and told.recall < recall:
        faults.append(f"it warned before {told.recall:.0%} of the onsets, the bar is {recall:.0%}")
    if told.onsets and told.precision is not None and told.precision < precision:
        faults.append(f"{told.precision:.0%} of its alarms came true, the bar is {precision:.0%}")
    if told.calm is not None and told.calm > calm:
        faults.append(f"it was in alarm for {told.calm:.1%} of the calm seconds, the bar is {calm:.1%}")
    if faults:
        return False, "Under its bar: " + "; ".join(faults) + "."
    if not told.onsets and preempted:
        return True, "Requests were preempted, but never after a quiet minute: there was no onset to warn of."
    if not told.onsets:
        return True, "The KV pool never ran out in this history, and the forecast kept quiet about it."
    return True, f"The forecast warned before {told.recall or 0.0:.0%} of {told.onsets} onsets and reached its bar."


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vllm-headroom backtest", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prometheus", metavar="URL", help="a Prometheus server that scraped vLLM")
    source.add_argument("--recording", type=Path, metavar="PATH", help="a recording, or a directory of them")
    parser.add_argument("--start", type=_moment, help="of the history: ISO 8601 or Unix seconds")
    parser.add_argument("--end", type=_moment, help="of the history: ISO 8601 or Unix seconds")
    parser.add_argument("--match", default="", help='further label matchers, as in PromQL: namespace="prod"')
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a report with every onset's timeline")
    parser.add_argument("--api-key-file", type=Path, help="a bearer token for Prometheus")
    parser.add_argument("--max-num-seqs", type=int, help="the engine's --max-num-seqs")
    parser.add_argument("--max-num-batched-tokens", type=int, help="the engine's --max-num-batched-tokens")
    parser.add_argument("--max-model-len", type=int, help="the engine's --max-model-len")
    parser.add_argument("--bar-recall", type=float, default=0.5, help="onsets warned of, at least (default 0.5)")
    parser.add_argument("--bar-precision", type=float, default=0.5, help="alarms come true, at least (default 0.5)")
    parser.add_argument("--bar-calm", type=float, default=0.05, help="calm seconds in alarm, at most (default 0.05)")
    args = parser.parse_args(argv)
    if args.prometheus is not None and (args.start is None or args.end is None):
        raise InputError("--prometheus needs --start and --end: which history?")
    if args.prometheus is not None and args.start >= args.end:
        raise InputError("--start must lie before --end")
    return args


def _moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither ISO 8601 nor Unix seconds") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _recorded(path: Path) -> list[History]:
    paths = sorted(path.glob("*.jsonl.gz")) if path.is_dir() else [path]
    if not paths:
        raise InputError(f"{path}: holds no recording (*.jsonl.gz)")
    histories: list[History] = []
    for each in paths:
        recording = Recording(each)
        options = options_of(recording.meta())
        found = replayed(_recorded_readings(recording, options.max_model_len), options)
        events = [event.time for event in recording.events()]
        if events and len(found) == 1:
            found[0].events = [time - found[0].began for time in events]
        histories += found
    return histories


def _recorded_readings(recording: Recording, max_model_len: int | None) -> Iterator[Reading]:
    for _, engines in recording.readings():
        for reading in engines:
            yield f"{recording.name}, engine {reading.engine}", reading, pool_in(reading, max_model_len)


def _from_prometheus(args: argparse.Namespace) -> list[History]:
    from exporter.sources.endpoint import Access, Endpoint
    from exporter.sources.prometheus import SOURCE
    from exporter.sources.prometheus import History as Prometheus

    options = replace(
        ForecastOptions(),
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        max_model_len=args.max_model_len,
    )
    endpoint = Endpoint(SOURCE, args.prometheus, Access(timeout_seconds=60.0, api_key_file=args.api_key_file))
    try:
        readings = (
            (
                f"{scrape.target}: {reading.model_name}, engine {reading.engine}",
                reading,
                pool_in(reading, options.max_model_len),
            )
            for scrape in Prometheus(endpoint, args.match).scrapes(args.start, args.end)
            for reading in scrape.engines
        )
        return replayed(readings, options)
    except SourceError as error:
        raise InputError(f"--prometheus {args.prometheus}: {error}") from None
    finally:
        endpoint.close()


def _print(histories: Sequence[History], scores: dict[str, Score], verdict: str) -> None:
    out = sys.stdout
    slowest = max((history.interval for history in histories), default=0.0)
    out.write(f"{len(histories)} engines, read about every {slowest:.0f} s\n\n")
    width = max(len(name) for name in scores)
    out.write(" " * width + "".join(f"{column:>11}" for column in COLUMNS) + "\n")
    for name, told in scores.items():
        out.write(f"{name:<{width}}" + "".join(f"{shown(getattr(told, column)):>11}" for column in COLUMNS) + "\n")
    out.write(f"\n{verdict}\n")
