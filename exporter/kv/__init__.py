"""The arithmetic of the KV cache: pure functions, no clock, no I/O."""
