"""What is committed is what the chart gives."""

from deploy.build import HERE, everything, stale


def test_committed_files_are_up_to_date() -> None:
    """The chart's copies and README, the plain manifests, the kustomization and the examples are as built."""
    made = everything()
    late = [path for path, text in made.items() if not (HERE / path).is_file() or (HERE / path).read_text() != text]
    assert late + stale(made) == [], "run python -m deploy.build"
