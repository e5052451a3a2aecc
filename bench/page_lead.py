"""How long before the first preemption the page arrives: `python -m bench.page_lead`.

The embedded engine is given more than its pool can hold; exporter, Prometheus (scraping every 2 s) and Alertmanager
(waiting 10 s to gather alerts) are the real ones, with the committed rules and routing.
"""

import sys
import tempfile
from pathlib import Path

from tests.grafana.story import tell


def main() -> int:
    """Print one line for each form of the routing; 0 when both incidents ended."""
    with tempfile.TemporaryDirectory() as home:
        story = tell(Path(home))
    for router, events in story.events.items():
        for event in events:
            lead = "no preemption" if story.preempted is None else f"{story.preempted - event.time:+.1f} s before it"
            print(f"{router}: {event.action} {event.body.get('payload', {}).get('severity', '')} {lead}")
    print(f"{story.seconds:.0f} s in all")
    return 0 if all(events and events[-1].action == "resolve" for events in story.events.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
