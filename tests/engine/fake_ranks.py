# mypy: ignore-errors
"""Process groups that have a size and a rank and never communicate, for vLLM's parallel state."""

from __future__ import annotations

import torch


class Group:
    """A process group that has a size and a rank and never communicates."""

    def __init__(self, ranks, me: int) -> None:
        self.ranks, self.rank_in_group = list(ranks), me
        self.world_size = len(self.ranks)
        self.rank = self.local_rank = self.ranks[me]
        self.unique_name = self.group_name = "stub"
        self.device = torch.device("meta")
        self.cpu_group = self.device_group = self
        self.device_communicator = self.mq_broadcaster = None
        self.use_custom_op_call = self.use_device_communicator = False

    is_first_rank = property(lambda self: self.rank_in_group == 0)
    is_last_rank = property(lambda self: self.rank_in_group == self.world_size - 1)
    first_rank = property(lambda self: self.ranks[0])
    last_rank = property(lambda self: self.ranks[-1])

    def size(self) -> int:
        return self.world_size

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **_kwargs: args[0] if args else None


def set_rank(case: dict, pp_rank: int) -> None:
    """vLLM's parallel state as rank (tp 0, pp `pp_rank`) sees it; every TP rank has the same specs."""
    import vllm.distributed.parallel_state as state

    tp, pp = case["tp"], case["pp"]
    state._WORLD = Group(range(tp * pp), pp_rank * tp)
    state._TP = state._EP = state._EPLB = Group(range(tp), 0)
    state._PP = Group(range(pp), pp_rank)
    state._DP = state._PCP = Group([0], 0)
    state._DCP = Group(range(case["dcp"]), 0)
    if hasattr(state, "_ETP"):
        state._ETP = state._TP
    if hasattr(state, "_INNER_DP_WORLD"):
        state._INNER_DP_WORLD = state._WORLD
