"""Custom resources against their CRDs: by the validators and type declarations that npm's kubernetes-models ship.

The validators check types and required fields but accept any extra key, which the API server would drop in silence;
the type declarations know every key.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.deploy.tools import ROOT, Manifest, run
from tests.support.tools import tool as program

HERE = Path(__file__).parent / "crds"
FOLDER = ROOT / ".venv" / "share" / "crds"
_MODELS = FOLDER / "node_modules" / "@kubernetes-models"
_PLACES = {
    "monitoring.coreos.com/v1": _MODELS / "prometheus-operator" / "monitoring.coreos.com" / "v1",
    "monitoring.coreos.com/v1alpha1": _MODELS / "prometheus-operator" / "monitoring.coreos.com" / "v1alpha1",
    "keda.sh/v1alpha1": _MODELS / "keda" / "keda.sh" / "v1alpha1",
}
_IMPORT = re.compile(r'^import \{ (\w+) \} from "(\.[^"]+)\.js";$')
_FIELD = re.compile(r'^    "(?P<key>[^"]+)"\??: (?:Array<)?(?P<type>\w+|\{)?')


@cache
def installed() -> Path:
    """The folder of the npm packages, put there by `npm ci` where it is missing or older than the lock file."""
    lock = HERE / "package-lock.json"
    there = FOLDER / "package-lock.json"
    if not there.is_file() or there.read_text() != lock.read_text() or not _MODELS.is_dir():
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, FOLDER)
        done = run(
            [program("npm", "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix", FOLDER]
        )
        if done.returncode:
            there.unlink()
            raise AssertionError(f"npm ci: {done.stderr}")
    return FOLDER


def findings(resources: Sequence[Manifest]) -> list[str]:
    """What the CRDs have against these resources."""
    done = run(["node", HERE / "validate.mjs", installed()], stdin=json.dumps(resources))
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    for resource in resources:
        file = _PLACES[resource["apiVersion"]] / f"{resource['kind']}.d.ts"
        found += [f"{resource['kind']} has no field {path}" for path in _unknown(resource, file, "")]
    return found


def is_known(resource: Manifest) -> bool:
    """Whether the resource is one of a CRD that is known here."""
    return resource["apiVersion"] in _PLACES


def _unknown(value: Any, file: Path, path: str) -> Iterator[str]:
    """Paths of the keys of `value` that the type declared in `file` does not have."""
    if isinstance(value, list):
        for item in value:
            yield from _unknown(item, file, path)
    elif isinstance(value, dict):
        fields = _fields(file)
        for key, item in value.items():
            if key not in fields:
                yield f"{path}.{key}"
            elif (deeper := fields[key]) is not None:
                yield from _unknown(item, deeper, f"{path}.{key}")


@cache
def _fields(file: Path) -> Mapping[str, Path | None]:
    """Field → the file that declares its type, or None where the type is a plain one or declared elsewhere."""
    imports: dict[str, Path] = {}
    fields: dict[str, Path | None] = {}
    in_class = False
    for line in file.read_text().splitlines():
        if found := _IMPORT.match(line):
            imports[found[1]] = (file.parent / f"{found[2]}.d.ts").resolve()
        elif line.startswith("export declare class"):
            in_class = True
        elif in_class and (field := _FIELD.match(line)):
            declared = imports.get(field["type"] or "")
            fields[field["key"]] = declared if declared and _is_class(declared) else None
    return fields


@cache
def _is_class(file: Path) -> bool:
    return "export declare class" in file.read_text()
