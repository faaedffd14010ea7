"""Feed-forward layers: gated and plain MLPs, and mixtures of experts.

Source: vLLM 0.32 model_executor/models/{llama,qwen3_moe,deepseek_v2}.py, layers/fused_moe/.
"""

from __future__ import annotations

from typing import NamedTuple

from advisor.weights.tally import Tally


def gated_mlp(
    t: Tally,
    name: str,
    hidden: int,
    inner: int,
    *,
    bias: bool = False,
    up: str = "gate_up_proj",
    down: str = "down_proj",
) -> None:
    """Gate and up projection in one, and the down projection."""
    t.column(f"{name}.{up}", hidden, inner, inner, bias=bias)
    t.row(f"{name}.{down}", inner, hidden, bias=bias)


def plain_mlp(
    t: Tally, name: str, hidden: int, inner: int, *, bias: bool = False, up: str = "up_proj", down: str = "down_proj"
) -> None:
    """One projection up and one down."""
    t.column(f"{name}.{up}", hidden, inner, bias=bias)
    t.row(f"{name}.{down}", inner, hidden, bias=bias)


class Moe(NamedTuple):
    """One mixture of experts. `gate_bytes` is the router's element size where it is not the model's."""

    hidden: int
    experts: int
    inner: int
    shared_inner: int = 0
    gated: bool = True
    bias: bool = False
    gate: str = "gate"
    gate_bias: bool = False
    gate_bytes: int | None = None
    gate_quantised: bool = False
    score_bias: bool = False  # one float32 an expert
    shared: str = "shared_experts"
    shared_gate: bool = False
    shared_bias: bool = False


def mixture(t: Tally, name: str, m: Moe) -> None:
    """Router, routed experts, and the shared expert beside them."""
    if m.gate_quantised:
        t.replicated(f"{name}.{m.gate}", m.hidden, m.experts)
    else:
        t.values(m.hidden * m.experts, m.gate_bytes)
    if m.gate_bias:
        t.values(m.experts)
    if m.score_bias:
        t.values(m.experts, 4)
    t.experts(f"{name}.experts", m.experts, m.hidden, m.inner, gated=m.gated, bias=m.bias)
    if m.shared_inner:
        build = gated_mlp if m.gated else plain_mlp
        build(t, f"{name}.{m.shared}", m.hidden, m.shared_inner, bias=m.shared_bias)
    if m.shared_gate:
        t.values(m.hidden)
