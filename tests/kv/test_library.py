"""The arithmetic is usable as a library, as its documentation shows."""

import doctest

import exporter.kv


def test_the_example_in_the_package_is_true() -> None:
    """What the package's docstring shows is what happens."""
    result = doctest.testmod(exporter.kv)
    assert result.attempted >= 5
    assert result.failed == 0
