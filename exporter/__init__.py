"""vllm-headroom: says before it hurts that a vLLM server's memory is about to run out."""

__version__ = "0.1.0"
