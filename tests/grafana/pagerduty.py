"""A loopback server that speaks PagerDuty's Events API v2, and Alertmanager's own view of an AlertmanagerConfig."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

ACTIONS = ("trigger", "acknowledge", "resolve")
SEVERITIES = ("critical", "error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Event:
    """An accepted event and when it came, in Unix seconds."""

    time: float
    body: Mapping[str, Any]

    @property
    def action(self) -> str:
        return str(self.body["event_action"])

    @property
    def payload(self) -> Mapping[str, Any]:
        payload: Mapping[str, Any] = self.body["payload"]
        return payload


def faults(body: Any, routing_key: str) -> list[str]:
    """What PagerDuty would refuse an event for, by the rules of its Events API v2."""
    if not isinstance(body, dict):
        return ["the event is not a JSON object"]
    found = []
    if body.get("routing_key") != routing_key:
        found.append("routing_key is not the service's")
    if body.get("event_action") not in ACTIONS:
        found.append(f"event_action must be one of {ACTIONS}")
    if not 0 < len(body.get("dedup_key", "")) <= 255:
        found.append("dedup_key must have 1 to 255 characters")
    if body.get("event_action") == "trigger":
        payload = body.get("payload", {})
        if not 0 < len(payload.get("summary", "")) <= 1024:
            found.append("payload.summary must have 1 to 1024 characters")
        if not payload.get("source"):
            found.append("payload.source is missing")
        if payload.get("severity") not in SEVERITIES:
            found.append(f"payload.severity must be one of {SEVERITIES}")
        if not isinstance(payload.get("custom_details", {}), dict):
            found.append("payload.custom_details must be an object")
        found += [
            f"link {link} has no href" for link in body.get("links", []) if not link.get("href", "").startswith("http")
        ]
    if len(json.dumps(body)) > 512_000:
        found.append("the event is larger than 512 KB")
    return found


class PagerDuty:
    """Accepts events on a loopback port for one routing key; keeps what it accepted and what it refused."""

    def __init__(self, routing_key: str) -> None:
        self.accepted: list[Event] = []
        self.refused: list[list[str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                wrong = ["not the path of the API"] * (self.path != "/v2/enqueue") + faults(body, routing_key)
                if wrong:
                    outer.refused.append(wrong)
                    self._answer(
                        400, {"status": "invalid event", "message": "Event object is invalid", "errors": wrong}
                    )
                else:
                    outer.accepted.append(Event(time.time(), body))
                    self._answer(
                        202, {"status": "success", "message": "Event processed", "dedup_key": body["dedup_key"]}
                    )

            def _answer(self, status: int, body: Mapping[str, Any]) -> None:
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v2/enqueue"


def as_operator(config: Mapping[str, Any], namespace: str, key_file: str) -> dict[str, Any]:
    """What the Prometheus Operator makes of an AlertmanagerConfig under its default strategy, OnNamespace.

    Names get the resource's prefix, every route and inhibition is bound to the resource's namespace, and the
    Secret's key is given as a file.
    """
    spec, prefix = config["spec"], f"{namespace}/{config['metadata']['name']}/"
    own = f'namespace="{namespace}"'

    def matcher(one: Mapping[str, str]) -> str:
        return f'{one["name"]}{one["matchType"]}"{one["value"]}"'

    def route(one: Mapping[str, Any]) -> dict[str, Any]:
        timing = {"group_wait": "groupWait", "group_interval": "groupInterval", "repeat_interval": "repeatInterval"}
        return {
            "receiver": prefix + one["receiver"],
            "matchers": [matcher(m) for m in one["matchers"]],
            "group_by": one["groupBy"],
            **{name: one[camel] for name, camel in timing.items() if camel in one},
            "routes": [route(child) for child in one.get("routes", [])],
        }

    def pagerduty(one: Mapping[str, Any]) -> dict[str, Any]:
        same = ("client", "description", "severity", "class", "component", "group")
        return {
            "routing_key_file": key_file,
            "send_resolved": one["sendResolved"],
            "client_url": one["clientURL"],
            **{name: one[name] for name in same},
            "details": {detail["key"]: detail["value"] for detail in one["details"]},
            "links": [{"href": link["href"], "text": link["alt"]} for link in one["pagerDutyLinkConfigs"]],
        }

    top = route(spec["route"])
    top["matchers"] = [own, *top["matchers"]]
    return {
        "route": {"receiver": "null", "routes": [top | {"continue": True}]},
        "inhibit_rules": [
            {
                "source_matchers": [own, *map(matcher, rule["sourceMatch"])],
                "target_matchers": [own, *map(matcher, rule["targetMatch"])],
                "equal": rule["equal"],
            }
            for rule in spec["inhibitRules"]
        ],
        "receivers": [
            {"name": "null"},
            *(
                {"name": prefix + one["name"], "pagerduty_configs": [pagerduty(p) for p in one["pagerdutyConfigs"]]}
                for one in spec["receivers"]
            ),
        ],
    }
