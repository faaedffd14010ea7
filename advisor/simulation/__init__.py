"""A load played through vLLM's scheduler, step by step, with no engine: what the block pool really does."""
