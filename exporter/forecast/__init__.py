"""Readings in, assessment out: pure, and deterministic for a given seed."""
