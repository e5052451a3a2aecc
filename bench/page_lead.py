"""How long before the first preemption the page arrives: `python -m bench.page_lead`.

The embedded engine is given more than its pool can hold; exporter, Prometheus (scraping every 2 s) and Alertmanager
(waiting 10 s to gather alerts) are the real ones, with the committed rules and routing.
"""

import sys
import tempfile
from pathlib import Path

from tests.grafana.pagerduty import Event
from tests.grafana.story import tell


def _when(event: Event, preempted: float | None) -> str:
    if preempted is None:
        return "and no preemption came"
    seconds = preempted - event.time
    return f"{abs(seconds):.1f} s {'before' if seconds > 0 else 'after'} the first preemption"


def main() -> int:
    """Print one line for each form of the routing; 0 when both incidents ended."""
    with tempfile.TemporaryDirectory() as home:
        story = tell(Path(home))
    for router, events in story.events.items():
        for event in events:
            print(f"{router}: {event.action} ({event.payload.get('severity')}) {_when(event, story.preempted)}")
    print(f"{story.seconds:.0f} s in all")
    return 0 if all(events and events[-1].action == "resolve" for events in story.events.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
