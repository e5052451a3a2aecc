"""From an engine that overloads to a page, and from its recovery to the end of the same incident."""

import json
import re
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.grafana.pagerduty import Event, PagerDuty
from tests.grafana.stack import alertmanager
from tests.grafana.story import KEY, WHERE, Story, configured
from tests.grafana.test_alertmanager import CONFIG, load


@pytest.mark.parametrize("router", ["plain", "operator"])
def test_an_overload_pages_before_it_hurts_and_recovery_ends_the_incident(story: Story, router: str) -> None:
    """The page comes before the first preemption; what follows has the same key; the last event resolves it."""
    events = story.events[router]
    assert story.refused == []
    assert story.preempted is not None
    assert [event.action for event in events][:: len(events) - 1] == ["trigger", "resolve"]
    assert len({event.body["dedup_key"] for event in events}) == 1
    assert events[0].time < story.preempted


@pytest.mark.parametrize("router", ["plain", "operator"])
def test_the_page_tells_what_a_person_needs(story: Story, router: str) -> None:
    """Severity, names, evidence with numbers, a first action with its flag, links to runbook and dashboard."""
    page = next(event for event in story.events[router] if event.payload["severity"] == "critical")
    details = page.payload["custom_details"]
    assert page.payload["summary"].startswith(
        "Engine 0 of llama-3.1-8b (pod llm/chat-0) is running out of KV cache now"
    )
    assert page.payload["component"] == "vllm"
    assert page.payload["group"] == "llama-3.1-8b"
    assert re.match(r"Probability \d+(\.\d+)?% within 60 s, expected in \d", details["evidence"])
    assert "--max-num-seqs lowered to about" in details["action"]
    assert (details["model"], details["namespace"], details["num_firing"]) == ("llama-3.1-8b", "llm", "1")
    links = {link["text"]: link["href"] for link in page.body["links"]}
    assert links["Runbook"].endswith("/docs/runbooks/VLLMHeadroomKVExhaustionPredicted.md")
    assert links["Dashboard"].endswith("&var-namespace=llm&var-model=llama-3.1-8b&var-pod=chat-0")


def post(url: str, severity: str, ends: datetime) -> None:
    """Tell Alertmanager of the KV alert at one severity, as Prometheus does."""
    labels = {
        "alertname": "VLLMHeadroomKVExhaustionPredicted",
        "severity": severity,
        "model_name": "chat-8b",
        "engine": "0",
    }
    alert = {
        "labels": labels | WHERE,
        "annotations": {"summary": f"{severity} summary", "runbook_url": "https://example.org/runbook"},
        "startsAt": (datetime.now(UTC) - timedelta(seconds=1)).isoformat(),
        "endsAt": ends.isoformat(),
    }
    body = json.dumps([alert]).encode()
    request = urllib.request.Request(f"{url}/api/v2/alerts", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as response:
        assert response.status == 200


def wait_for(duty: PagerDuty, count: int) -> Event:
    until = time.monotonic() + 45
    while len(duty.accepted) < count:
        assert time.monotonic() < until, [event.body for event in duty.accepted]
        time.sleep(0.1)
    return duty.accepted[count - 1]


def test_a_warning_that_turns_critical_stays_one_incident(tmp_path: Path) -> None:
    """Warning, critical, resolved: three events with one key, whose severity rises; the muted warning adds none."""
    later = datetime.now(UTC) + timedelta(minutes=5)
    config = load(CONFIG)
    config["route"]["routes"][0] |= {"group_wait": "1s", "group_interval": "2s"}
    with PagerDuty(KEY) as duty, alertmanager(tmp_path, configured(config, duty, tmp_path)) as url:
        post(url, "warning", later)
        assert wait_for(duty, 1).payload["severity"] == "warning"
        post(url, "critical", later)
        turned = wait_for(duty, 2)
        assert (turned.payload["severity"], turned.payload["summary"]) == ("critical", "critical summary")
        for severity in ("warning", "critical"):
            post(url, severity, datetime.now(UTC))
        assert wait_for(duty, 3).action == "resolve"
        assert len({event.body["dedup_key"] for event in duty.accepted}) == 1
        assert duty.refused == []
