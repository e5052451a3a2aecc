"""What `scripts/test-vllm` found, as sections of docs/proof.md.

rm -f found.json; time VLLM_FINDINGS=found.json scripts/test-vllm
python -m bench.proof.suite found.json --minutes 24 && python docs/build.py
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from bench.proof.section import Section, Table, here

COMMAND = "scripts/test-vllm"
Found = dict[str, dict[str, Any]]


def accounting(found: Found, ran: dict[str, str]) -> Section:
    """Figures against requests of known lengths."""
    used, queues = found["used blocks"], found["queues"]
    preempted, again, fits = found["preemptions"], found["recomputed"], found["headroom in requests"]
    capacity = found["capacity"]
    off = again["told"] / again["tokens_for_each_preemption"] - 1
    aim = "That is within the aim of 2 %." if abs(off) <= 0.02 else "The aim of 2 % is missed."
    rows = (
        (
            "used blocks",
            "the sum over live requests, ±1 block each, at every reading",
            f"{used['readings']} readings of up to {used['most_live_requests']} requests: "
            f"{used['readings_exact']} exact, the worst {used['most_blocks_off']:g} blocks off",
        ),
        (
            "capacity",
            "the engine's own figure; ratio to the arithmetic 1.00",
            f"{capacity['tokens']:,.0f} tokens, {capacity['blocks']:g} usable blocks, "
            f"ratio {capacity['calibration_ratio']:.2f}",
        ),
        (
            "running and waiting",
            "together the live requests, at every reading",
            f"{queues['readings']} readings, the worst {queues['most_requests_off']:g} off",
        ),
        (
            "preemptions",
            "those of the scheduler, one for one",
            f"{preempted['by_the_scheduler']} by the scheduler, {preempted['by_the_exporter']:g} by the exporter",
        ),
        (
            "tokens computed again",
            "within 2 %",
            f"{again['tokens_for_each_preemption']:,} a preemption, estimated as {again['told']:,}: {off:+.0%}",
        ),
        (
            "headroom in requests",
            "so many more are admitted, and one more waits",
            f"told and admitted: {', '.join(map(str, fits['told_and_admitted']))}; one more waited each time",
        ),
    )
    text = (
        "The requests are prompts of token ids with a known number of output tokens, streamed, so that the test knows "
        "at every moment what each has generated. The server's scheduler is vLLM's own with a ledger: it writes down "
        "whom it preempts and how many tokens the prefix cache gives back, which no page tells, and it takes 20 ms "
        "between two steps, as a larger model would.",
        "What preemption computes again is on no counter of vLLM's page; the exporter estimates it from what exists "
        f"and is not held. {aim} On vLLM's scheduling of other loads the estimate was within 10 % in most, and 30 % "
        "off at worst (`exporter/forecast/evicted.py`).",
    )
    table = Table(("what", "must be", "found"), rows)
    return Section(10, "Figures against known requests", text, COMMAND, ran, (table,), figures=found)


def alarm(found: Found, ran: dict[str, str]) -> Section:
    """Calm runs and ramps."""
    runs, calm = found["ramps"]["runs"], found["calm"]
    rows = []
    for run in runs:
        lead = run["lead"]
        rows.append(
            (
                run["ramp"].replace("_", " "),
                f"{run['calm_usage']:.0%}, at most {run['calm_peak']:.0%}",
                "alarm" if run["calm_alarm"] else "quiet",
                "never" if run["first_preemption"] is None else f"{run['first_preemption']:.0f} s",
                "never on" if lead is None else f"{lead:+.0f} s",
                run["named"].replace("_", " "),
            )
        )
    ramps = [run for run in runs if run["ramp"].startswith("arrivals double")]
    before = sum(run["lead"] is not None and run["lead"] > 0 for run in ramps)
    text = (
        "A load that fits for 90 s, then more than fits: arrivals that double every so many seconds; prompts and "
        "outputs three times as long; five times the arrivals at once; a prompt of 3,000 tokens every 1.7 s beside "
        "the usual. A fresh exporter each time, four servers with 1,024 usable blocks of 32 tokens, 100 ms a step. The "
        "truth is the scheduler's ledger: the page's own counter moves only when the victim runs again.",
        f"The alarm was on before the first preemption in {before} of {len(ramps)} ramps of arrivals (aim: 8 of 10), "
        f"and quiet in {calm['quiet']} of {calm['runs']} calm runs (aim: all). The other three loads are there for "
        "the driver; what came first in them is in the table, too.",
    )
    columns = ("ramp", "pool in use before", "while calm", "first preemption after", "alarm before it", "driver named")
    return Section(20, "The alarm on a live engine", text, COMMAND, ran, (Table(columns, tuple(rows)),))


CASES: dict[str, str] = {
    "data parallel size 2": "both engines apart; their used blocks together within {most_blocks_off:g} of what is "
    "known, over {readings} readings",
    "two API servers": "{most_requests:g} requests at most, none counted twice; {counted:g} preemptions of "
    "{preemptions_by_the_scheduler}",
    "key, root path and TLS": "read with all three; without the key the page is read and the model unknown; a "
    "certificate nobody vouches for is refused and said to be",
    "restart in mid-load": "nothing known while down; {rates_shown} rates shown, the least {least:g}, the highest "
    "{highest:g}",
    "sleep and wake": "`asleep` without an alarm, then `ok`",
    "a request as long as the pool": "vLLM refuses what is longer; the longest held {most_blocks_used:g} of 255, "
    "none was preempted; {alarms:g} of {readings:g} readings in alarm",
    "shared prefixes": "{blocks_if_nothing_were_shared:g} blocks if nothing were shared, {most_blocks_used:g} used, "
    "within {most_blocks_off:g} of what is known; {alarms:g} readings in alarm",
    "max-num-seqs": "{alarms:g} readings in alarm at {most_used_ratio:.0%} of the pool; driver over "
    "{readings_with_a_queue} readings with a queue: {drivers}",
    "waiting by reason": "adapter's place taken: {adapter_taken}; seats taken: {seats_taken}",
    "abort storms": "{aborted} aborted in five storms; pool empty within {seconds_until_empty} s, `ok` after "
    "{seconds_until_ok:g} s",
    "killed": "known after {seconds_until_known:g} s; nothing of the pool is shown any more",
    "suspended": "the whole server: `unknown` after {server_seconds_until_unknown:g} s; its engine alone, the page "
    "still served: `stalled` after {engine_seconds_until_stalled:g} s",
}


def cases(found: Found, ran: dict[str, str]) -> Section:
    """The engine's hard cases."""
    rows = tuple((name, _plain(told.format(**found[name]))) for name, told in CASES.items() if name in found)
    text = ("Each is a test that fails when the exporter says anything else than what is written here.",)
    return Section(30, "Hard cases", text, COMMAND, ran, (Table(("case", "what the exporter said"), rows),))


def _plain(text: str) -> str:
    return re.sub(r"\.0\b(?!\.)", "", text.translate(str.maketrans("", "", "{}[]'")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--vllm", default="0.32.0")
    parser.add_argument("--minutes", type=float, help="how long the whole run took, if it was one")
    options = parser.parse_args()
    found: Found = json.loads(options.file.read_text(encoding="utf-8"))
    took = f"{options.minutes:.0f} min" if options.minutes else "not measured in one run"
    ran = here(options.vllm, all_checks=took)
    for name, make in {"suite-accounting": accounting, "suite-alarm": alarm, "suite-cases": cases}.items():
        try:
            section = make(found, ran)
        except KeyError as missing:
            print(f"{name}: not written, its check {missing} found nothing")
            continue
        section.save(name)


if __name__ == "__main__":
    main()
