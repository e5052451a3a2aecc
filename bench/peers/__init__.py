"""This project beside every other monitor of vLLM that PyPI has, in one run. See `python -m bench.peers --help`."""
