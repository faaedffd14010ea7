"""kvadvise: choose vLLM's flags from a workload, start it, and prove it holds."""

__version__ = "0.1.0"
