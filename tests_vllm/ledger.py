"""vLLM's own scheduler, writing down what its page does not tell: every preemption and what it computes again.

Runs inside the server: `--scheduler-cls tests_vllm.ledger.Ledger` with this repository on PYTHONPATH. It decides
nothing. `LEDGER_FILE` gets a JSON line for each event. `LEDGER_PACE_FILE` holds the seconds that lie between two
steps at least, and may be rewritten at any time: a model this small is done in a few milliseconds, a real one takes
tens.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class Ledger(Scheduler):  # type: ignore[misc]
    """The scheduler of an engine that runs one step at a time, as the CPU's does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ledger = Path(os.environ["LEDGER_FILE"])
        self._pace = Path(os.environ["LEDGER_PACE_FILE"])
        self._stepped = 0.0
        self._preempted: set[str] = set()

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        time.sleep(max(0.0, self._stepped + float(self._pace.read_text()) - time.monotonic()))
        self._stepped = time.monotonic()
        output = super().schedule(*args, **kwargs)
        for name in self._preempted & output.num_scheduled_tokens.keys():
            self._preempted.discard(name)
            cached = self.requests[name].num_computed_tokens - output.num_scheduled_tokens[name]
            self._write("resumed", name, cached)
        return output

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        self._write("preempted", request.request_id, request.num_computed_tokens)
        self._preempted.add(request.request_id)
        super()._preempt_request(request, *args, **kwargs)

    def _write(self, event: str, request: str, tokens: int) -> None:
        line = {"at": time.time(), "event": event, "request": request, "tokens": tokens}
        with self._ledger.open("a", encoding="utf-8") as book:
            book.write(json.dumps(line) + "\n")
