"""The outside world, read only: one module a source."""
