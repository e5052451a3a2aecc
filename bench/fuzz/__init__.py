"""Fuzzing of everything that is read from outside: `python -m bench.fuzz TARGET|all`."""
