"""Data only: workloads, GPUs, models, and what changes from one vLLM version to the next."""
