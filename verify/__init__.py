"""A running vLLM to a verdict."""
