"""The rules and dashboards as Python, from which `grafana/build.py` writes the committed files."""
