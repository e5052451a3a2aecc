"""Dashboards, rules and alert routing."""
