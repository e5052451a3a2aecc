"""What vLLM's own page says."""

from exporter.sources.engines import assemble

__all__ = ["assemble"]
