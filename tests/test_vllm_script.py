"""`scripts/test-vllm` where there is no vLLM."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_checks_that_are_skipped_are_said_to_be(tmp_path: Path) -> None:
    """With --skip-if-absent and no vLLM it ends well, in one line that says that nothing was checked and what to do."""
    done = subprocess.run(
        [ROOT / "scripts" / "test-vllm", "--skip-if-absent"],
        env=os.environ | {"VLLM_ENV": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("SKIPPED: nothing was checked")
    assert "scripts/test-vllm installs it" in line


def test_plain_pytest_does_not_collect_them() -> None:
    """The default paths of pytest leave tests_vllm alone."""
    settings = (ROOT / "pyproject.toml").read_text()
    assert 'testpaths = ["tests"]' in settings
    assert '"tests_vllm"' in settings, "mypy must check it"
