"""The `backtest` command on recordings."""

from pathlib import Path

import pytest

from exporter.backtest import main
from exporter.backtest.command import Bars, judge
from exporter.backtest.replaying import Moment
from exporter.backtest.report import report
from exporter.backtest.scoring import Counts, score
from exporter.backtest.timeline import timeline
from exporter.errors import InputError

DATA = Path(__file__).parent.parent / "data" / "forecast"


def test_recordings_of_a_directory_are_scored_together(capsys: pytest.CaptureFixture[str]) -> None:
    """Every engine of every recording enters one table beside today's alert."""
    assert main(["--recording", str(DATA)]) in (0, 1)
    out = capsys.readouterr().out
    assert "2 engines" in out
    assert "vllm-headroom" in out
    assert "for 1m" in out


def test_arguments_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """A history without its span, and a directory without recordings, are told."""
    with pytest.raises(InputError, match="needs --start and --end"):
        main(["--prometheus", "http://127.0.0.1:9"])
    with pytest.raises(InputError, match="before --end"):
        main(["--prometheus", "http://127.0.0.1:9", "--start", "2026-01-02", "--end", "2026-01-01"])
    with pytest.raises(InputError, match="holds no recording"):
        main(["--recording", str(tmp_path)])


def test_a_history_without_exhaustion_and_without_alarms_is_good() -> None:
    """Nothing happened and nothing was said: the bar is reached."""
    good, sentence = judge(score(Counts()), Bars(), preempted=False)
    assert good
    assert "never ran out" in sentence


def test_a_history_that_is_exhausted_from_its_start_is_told_as_that() -> None:
    """Preemptions without an onset are not called quiet."""
    good, sentence = judge(score(Counts()), Bars(), preempted=True)
    assert good
    assert "no onset to warn of" in sentence


def test_names_from_outside_are_escaped() -> None:
    """A label is text in the report, whatever it holds."""
    from exporter.backtest.replaying import FORECAST, History

    history = History("<script>alert(1)</script>")
    history.detectors[FORECAST] = []
    page = report([history], {"<b>": score(Counts())}, "verdict & more", "<i>")
    assert "<script" not in page
    assert "<b>" not in page
    assert "verdict &amp; more" in page


def test_a_timeline_draws_what_was_read() -> None:
    """Usage, probability, the alarm's bar and the onset stand in one picture; absent values leave a line out."""
    moments = [Moment(float(t), 0.5, 0.0, None if t < 5 else 0.4, t > 7, None) for t in range(10)]
    drawn = timeline(moments, [8.0], 8.0)
    assert drawn.count("<polyline") == 2
    assert drawn.count('class="alarm"') == 1
    assert drawn.count('class="onset"') == 1
