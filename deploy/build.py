"""Write everything under deploy/ that is made: `python -m deploy.build`; `--check` only tells what would change.

The rules and dashboards are copied into the chart, because a chart can read only its own files; the chart's README
comes from values.yaml; the plain manifests, the kustomize component and the examples' sidecars are what the chart
renders, so that every way of installing gives the same container.
"""

import argparse
import sys
from pathlib import Path

from deploy.chart_readme import readme
from deploy.rendered import rendered

HERE = Path(__file__).parent
CHART = HERE / "helm" / "vllm-headroom"
GRAFANA = HERE.parent / "grafana"


def copied() -> dict[str, str]:
    """Path under deploy/ → text of the files the chart takes from grafana/."""
    sources = {
        "rules": sorted(GRAFANA.glob("template/*.yaml")),
        "dashboards": sorted(GRAFANA.glob("dashboards/*.json")),
        "alertmanager": [GRAFANA / "alertmanager" / "alertmanagerconfig.yaml"],
    }
    files = CHART.relative_to(HERE) / "files"
    return {str(files / kind / path.name): path.read_text() for kind, paths in sources.items() for path in paths}


def everything() -> dict[str, str]:
    """Path under deploy/ → the text of that file; what is rendered needs the copied files in place."""
    made = copied()
    made[str(CHART.relative_to(HERE) / "README.md")] = readme((CHART / "values.yaml").read_text())
    return made | rendered(CHART)


def stale(made: dict[str, str]) -> list[str]:
    """Files of the chart's files/ folder that nothing makes any more."""
    there = (str(path.relative_to(HERE)) for path in sorted((CHART / "files").rglob("*")) if path.is_file())
    return [path for path in there if path not in made]


def main(arguments: list[str]) -> int:
    """Write what differs; with --check, only name it and return 1."""
    parser = argparse.ArgumentParser(prog="python -m deploy.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is out of date")
    check = parser.parse_args(arguments).check
    changed = [] if check else _write(copied())
    made = everything()
    changed += _differing(made) if check else _write(made)
    for path in stale(made):
        changed.append(path)
        if not check:
            (HERE / path).unlink()
    for path in changed:
        print(f"{'out of date' if check else 'written'}: deploy/{path}")
    return 1 if check and changed else 0


def _differing(made: dict[str, str]) -> list[str]:
    return [path for path, text in made.items() if not (HERE / path).is_file() or (HERE / path).read_text() != text]


def _write(made: dict[str, str]) -> list[str]:
    changed = _differing(made)
    for path in changed:
        (HERE / path).parent.mkdir(parents=True, exist_ok=True)
        (HERE / path).write_text(made[path])
    return changed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
