"""Write everything under grafana/ that is made: `python -m grafana.build`; `--check` only tells what would change."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from grafana.mixin import alerts_health, alerts_kv, alerts_memory, engine, fleet, pagerduty, quality, recording, slo
from grafana.mixin.thresholds import Thresholds

HERE = Path(__file__).parent
NOTICE = "# Made by grafana/build.py; change grafana/mixin/ and build again.\n"


class _Dumper(yaml.SafeDumper):
    """Long texts stay on one line, texts with line breaks are written as blocks, and nothing is abbreviated."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 – the signature is yaml's own
        """What stands in two places is written twice."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def to_yaml(value: Any) -> str:
    """`value` as YAML, keys in their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=10**6, allow_unicode=True)


def rule_files(thresholds: Thresholds) -> dict[str, str]:
    """File name → its text."""
    groups = {
        "recording": [recording.group()],
        "kv": [alerts_kv.group(thresholds)],
        "memory": [alerts_memory.group(thresholds)],
        "health": [alerts_health.group(thresholds)],
        "slo": [slo.group(thresholds)],
    }
    return {f"{name}.yaml": NOTICE + to_yaml({"groups": [g.render() for g in gs]}) for name, gs in groups.items()}


def dashboard_files(thresholds: Thresholds) -> dict[str, str]:
    """File name → its text."""
    made = (module.dashboard(thresholds) for module in (engine, fleet, quality))
    return {f"{one.uid}.json": json.dumps(one.render(), indent=2, ensure_ascii=False) + "\n" for one in made}


def everything() -> dict[str, str]:
    """Path under grafana/ → the text of that file."""
    files = {f"rules/{name}": text for name, text in rule_files(Thresholds()).items()}
    files |= {f"dashboards/{name}": text for name, text in dashboard_files(Thresholds()).items()}
    files["alertmanager/alertmanager.yml"] = NOTICE + to_yaml(pagerduty.alertmanager())
    files["alertmanager/alertmanagerconfig.yaml"] = NOTICE + to_yaml(pagerduty.alertmanager_config())
    files |= {f"template/{name}": text for name, text in rule_files(Thresholds.placeholders()).items()}
    files["template/thresholds.json"] = json.dumps(Thresholds.reference(), indent=2) + "\n"
    return files


def main(arguments: list[str]) -> int:
    """Write what differs; with --check, only name it and return 1."""
    parser = argparse.ArgumentParser(prog="python -m grafana.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is out of date")
    check = parser.parse_args(arguments).check
    changed = []
    for name, text in everything().items():
        path = HERE / name
        if not path.is_file() or path.read_text() != text:
            changed.append(name)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    for name in changed:
        print(f"{'out of date' if check else 'written'}: grafana/{name}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
