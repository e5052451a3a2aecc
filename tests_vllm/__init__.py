"""What is checked against a real vLLM server: run by `scripts/test-vllm`, never by default."""
