"""Make the reference pages from the tables in the code: `python docs/build.py`; `--check` only compares."""

import sys
from pathlib import Path

from exporter.metrics import TABLE
from exporter.settings import Settings, flag, variable

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


PAGES = {"metrics.md": metrics_page, "settings.md": settings_page}


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
