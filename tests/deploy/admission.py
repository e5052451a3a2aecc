"""What the API server does with a MutatingAdmissionPolicy, as far as the chart's one uses it.

Kubernetes is stricter than a plain CEL evaluator, and so is this: patch types exist in mutations only, a typed object
must stand in the field its type names, and match conditions see no variables.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from tests.deploy.tools import Manifest


class PolicyError(Exception):
    """The policy fails on a pod; the API server would leave that pod alone (failurePolicy Ignore)."""


class _Typed(celtypes.MapType):
    """An object literal that knows its type."""

    def __init__(self, type_name: str, fields: Any) -> None:
        super().__init__(fields or {})
        self.type_name = type_name


class _Type(celtypes.MapType):
    """A type name such as Object.spec.volumes: selecting gives a deeper type, calling makes an object."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __getitem__(self, key: Any) -> Any:
        return _Type(f"{self._name}.{key}")

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key]

    def __contains__(self, key: Any) -> bool:
        return True

    def __call__(self, fields: Any = None) -> _Typed:
        for field, value in (fields or {}).items():
            _same_types(f"{self._name}.{field}", value)
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, _Typed) and item.type_name != f"{self._name}.{field}" and field != "value":
                    raise PolicyError(f"{item.type_name} stands in {self._name}.{field}")
                if isinstance(item, celtypes.MapType) and not isinstance(item, _Typed) and field not in FREE_MAPS:
                    raise PolicyError(f"{self._name}.{field} is an untyped map")
        return _Typed(self._name, fields)


def _same_types(path: str, value: Any) -> None:
    """Kubernetes' CEL has no mixed maps or lists."""
    free_map = isinstance(value, celtypes.MapType) and not isinstance(value, _Typed)
    items = value.values() if free_map else value if isinstance(value, list) else ()
    if len({type(item) for item in items}) > 1:
        raise PolicyError(f"{path} mixes types")


FREE_MAPS = ("limits", "requests", "value")
"""Fields whose keys are the user's own; and the value of a patch, which may be an empty map."""


class _Variables(celtypes.MapType):
    """The policy's variables, each evaluated when first asked for."""

    def __init__(self, expressions: Mapping[str, str], evaluate: Callable[[str], Any]) -> None:
        super().__init__()
        self._expressions = expressions
        self._evaluate = evaluate

    def __getitem__(self, key: Any) -> Any:
        if key not in self:
            super().__setitem__(key, self._evaluate(self._expressions[str(key)]))
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key]


@cache
def compiled(expression: str) -> Any:
    """The expression's program; raises `PolicyError` where it isn't CEL."""
    environment = celpy.Environment()
    try:
        return environment.program(environment.compile(expression))
    except CELParseError as error:
        raise PolicyError(f"not CEL: {error}: {expression}") from error


def _evaluate(expression: str, context: dict[str, Any]) -> Any:
    try:
        return compiled(expression).evaluate(context)
    except CELEvalError as error:
        raise PolicyError(f"{str(error)[:200]}: {expression[:200]}") from error


def admit(policy: Manifest, pod: Manifest) -> Manifest:
    """The pod as it is after the policy; the same pod where the policy does not match."""
    spec = policy["spec"]
    wanted = spec["matchConstraints"]["objectSelector"]["matchLabels"]
    labels = pod["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in wanted.items()):
        return pod
    seen = json_to_cel(pod)
    for condition in spec["matchConditions"]:
        if not _evaluate(condition["expression"], {"object": seen}):
            return pod
    expressions = {variable["name"]: variable["expression"] for variable in spec["variables"]}
    context: dict[str, Any] = {"object": seen}
    context["variables"] = _Variables(expressions, lambda expression: _evaluate(expression, context))
    types = {"Object": _Type("Object"), "JSONPatch": _Type("JSONPatch")}
    patched = deepcopy(pod)
    for mutation in spec["mutations"]:
        for operation in _evaluate(mutation["jsonPatch"]["expression"], context | types):
            patched = _apply(patched, _plain(operation))
    return patched


def _plain(value: Any) -> Any:
    """A CEL value as JSON has it."""
    if isinstance(value, celtypes.MapType):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, celtypes.BoolType):
        return bool(value)
    if isinstance(value, celtypes.IntType):
        return int(value)
    return str(value)


def _apply(document: Any, operation: Mapping[str, Any]) -> Any:
    """RFC 6902's `add`, the only operation in use; a parent that is missing fails as it does there."""
    if operation["op"] != "add":
        raise PolicyError(f"unknown operation {operation['op']}")
    keys: Sequence[str] = [key.replace("~1", "/").replace("~0", "~") for key in operation["path"].split("/")[1:]]
    parent = document
    for key in keys[:-1]:
        try:
            parent = parent[key]
        except KeyError as error:
            raise PolicyError(f"{operation['path']}: nothing at {key}") from error
    if keys[-1] == "-":
        parent.append(operation["value"])
    else:
        parent[keys[-1]] = operation["value"]
    return document
