"""How vLLM lays out the KV cache: specs, block size, groups, blocks."""
