"""What was measured on a real vLLM server, kept as JSON, and the page made of it."""
