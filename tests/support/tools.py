"""Programs that tests need beside Python."""

import os
import shutil

import pytest


def tool(name: str, package: str) -> str:
    """The path of a program; without it the test fails in CI and is skipped, with what to install, elsewhere."""
    path = shutil.which(name)
    if path is not None:
        return path
    message = f"{name} is not installed: install the Debian package {package}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
