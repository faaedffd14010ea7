"""A plan to a running vLLM."""
