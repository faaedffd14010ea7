"""Weight bytes per rank, from a config alone."""

from __future__ import annotations

from advisor.weights.count import WeightCount, weight_bytes

__all__ = ["WeightCount", "weight_bytes"]
