"""Run `plan`: read, compute, print; every wrong input is one line and exit code 2."""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from exporter.errors import InputError, UsageError
from exporter.plan.answer import as_json, make_plan
from exporter.plan.arguments import Request, parse_arguments
from exporter.sources.model_config import cached_config, read_config_file


def run(argv: Sequence[str]) -> int:
    """Print the plan for these arguments. Exit code 0: it fits; 1: it does not; 2: wrong use."""
    try:
        request = parse_arguments(argv)
        if request.from_log is not None:
            from exporter.plan.log_report import explain_log

            return explain_log(request, sys.stdout)
        config = _config(request)
        plan = make_plan(config, request)
    except UsageError as error:
        sys.stderr.write(f"vllm-headroom: {error}\n")
        return 2
    if plan.refusal is not None:
        sys.stderr.write(f"vllm-headroom: {plan.refusal}\n")
    if request.as_json:
        sys.stdout.write(json.dumps(as_json(plan)) + "\n")
    elif plan.refusal is None:
        from exporter.plan.text import render

        sys.stdout.write(render(plan, config, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    if plan.refusal is not None:
        return 2
    return 0 if plan.fits else 1


def _config(request: Request) -> dict[str, Any]:
    if request.model_config is not None:
        return read_config_file(request.model_config)
    model = request.model or ""
    path = cached_config(model, os.environ)
    if path is None:
        raise InputError(
            f"--model {model}: no config.json of it in the Hugging Face cache on this disk; "
            "pass --model-config with the file itself"
        )
    return read_config_file(path)
