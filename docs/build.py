"""Make the reference pages from the tables in the code: `python docs/build.py`; `--check` only compares."""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bench.proof.page import proof_page
from exporter.metrics import TABLE
from exporter.settings import Settings, flag, variable
from exporter.web.status import Status
from tests.faults.table import faults_page

HERE = Path(__file__).parent


def metrics_page() -> str:
    """Every exported family, from the table that makes the page."""
    rows = [
        f"| `{family.name}` | {family.kind} | {', '.join(f'`{label}`' for label in family.labels) or '–'} | {family.help} |"
        for family in TABLE
    ]
    return "\n".join(
        [
            "# Metrics",
            "",
            "Made from the table in `exporter/metrics.py` by `python docs/build.py`.",
            "",
            "Base units; ratios are 0..1. What cannot be known gives no sample: it is never 0 and never NaN. `model_name` and",
            "`engine` are vLLM's own values; where several servers are watched, their series also carry `server` (host:port).",
            "Of `oom_probability`, `oom_predicted` and `time_to_exhaustion_seconds`, risk `kv` has the engine's labels, `device` the",
            "GPU's, `host` none. The standard `process_…` families of the exporter itself are on the page too.",
            "",
            "| family | type | labels | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def settings_page() -> str:
    """Every setting, from the class that reads them."""
    rows = []
    for name, setting in Settings.model_fields.items():
        default = setting.default
        shown = (
            " ".join(f"{item:g}" if isinstance(item, float) else item for item in default)
            if isinstance(default, tuple)
            else default
        )
        rows.append(
            f"| `{variable(name)}` | `{flag(name)}` | {'–' if shown is None else f'`{shown}`'} | {setting.description} |"
        )
    return "\n".join(
        [
            "# Settings",
            "",
            "Made from `exporter/settings.py` by `python docs/build.py`.",
            "",
            "The first place that has a value wins: command-line flag, environment variable, dotenv file (`--env-file` or",
            "`VLLM_HEADROOM_ENV_FILE`), directory of files (`--config-dir` or `VLLM_HEADROOM_CONFIG_DIR`; one file a setting, named as",
            "the variable), default. An empty variable is not given. Lists are separated by commas or blanks. A wrong value stops the",
            "start with exit code 2 and one line per fault; `vllm-headroom run --check-config` checks and does nothing else.",
            "",
            "| variable | flag | default | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def status_schema() -> dict[str, Any]:
    """The JSON schema of the status document, from the values it is made of."""
    schema = TypeAdapter(Status).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def status_schema_file() -> str:
    """The schema as it is committed."""
    return json.dumps(status_schema(), indent=2, ensure_ascii=False) + "\n"


def status_page() -> str:
    """The status document, key by key."""
    schema = status_schema()
    parts = [("The document", schema), *schema["$defs"].items()]
    lines = [
        "# The status document",
        "",
        "Made from `exporter/web/status.py` by `python docs/build.py`; the same as JSON Schema: "
        "[status-api.schema.json](status-api.schema.json).",
        "",
        "`GET /api/v1/status` answers with what the last tick knew, as one JSON document. `?window=60`, `300` or `900` sets how",
        "many seconds of the past each engine's `history` covers (900). Before the first tick the answer is 503.",
        "",
        "Every key is always there. `null` means not known: absent is never 0. Ratios are 0..1, times seconds, sizes bytes.",
        "`version` is 1: keys may be added to this version, none is removed or changes its meaning. Sentences are for people;",
        "their words may change.",
        "",
        "```sh",
        "curl -s http://127.0.0.1:9488/api/v1/status | jq -r .verdict.sentence",
        "```",
    ]
    for name, part in parts:
        lines += ["", f"## {name}", "", part.get("description", "").split("\n\n")[0], ""]
        lines += ["| key | type | meaning |", "|---|---|---|"]
        lines += [f"| `{key}` | {_type(of)} | {of.get('description', '')} |" for key, of in part["properties"].items()]
    return "\n".join(lines) + "\n"


def _type(schema: dict[str, Any]) -> str:
    """A type of the schema as a reader wants it."""
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if schema["type"] == "object":
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema["type"])


PAGES = {
    "faults.md": faults_page,
    "metrics.md": metrics_page,
    "proof.md": proof_page,
    "settings.md": settings_page,
    "status-api.md": status_page,
    "status-api.schema.json": status_schema_file,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check name those that differ and return 1."""
    stale = [name for name, make in PAGES.items() if not (HERE / name).exists() or (HERE / name).read_text() != make()]
    if "--check" in arguments:
        for name in stale:
            print(f"docs/{name} is out of date: run python docs/build.py")
        return 1 if stale else 0
    for name in stale:
        (HERE / name).write_text(PAGES[name]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
