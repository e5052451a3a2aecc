"""The `backtest` command: what a team would have been told, on its own history."""

from exporter.backtest.command import main

__all__ = ["main"]
