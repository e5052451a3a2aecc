"""The terminal view of any exporter or vLLM server."""
