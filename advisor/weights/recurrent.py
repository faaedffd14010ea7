"""Layers with a state instead of a cache: Mamba 1 and 2, gated delta nets, short convolutions.

Source: vLLM 0.32 model_executor/layers/mamba/{mamba_mixer,mamba_mixer2,short_conv}.py, layers/mamba/gdn/.
"""

from __future__ import annotations

from typing import NamedTuple

from advisor.weights.fields import Fields
from advisor.weights.tally import Tally


class Mamba2(NamedTuple):
    """One Mamba-2 mixer."""

    hidden: int
    inner: int
    heads: int
    groups: int
    state: int
    kernel: int
    bias: bool = False
    conv_bias: bool = True
    norm: bool = True


def mamba2(t: Tally, name: str, m: Mamba2) -> None:
    """Groups that do not divide are replicated to follow the heads, and then projections are not merged.

    vLLM keeps a second view of the convolution (`conv_weights`); it is counted as its buffers are listed.
    """
    group_size = _groups(t, m) * m.state
    if m.groups % t.tp == 0:
        t.column(f"{name}.in_proj", m.hidden, m.inner, m.inner, group_size, group_size, m.heads, bias=m.bias)
    else:
        t.column(f"{name}.in_proj", m.hidden, 2 * m.inner + 2 * group_size + m.heads, bias=m.bias)
    t.row(f"{name}.out_proj", m.inner, m.hidden, bias=m.bias)
    channels = t.share(m.inner + 2 * group_size, "the convolution of a Mamba layer")
    t.values(channels * m.kernel * 2 + (channels if m.conv_bias else 0))
    heads = t.share(m.heads, "the number of Mamba heads")
    t.values(heads, 4)  # A
    t.values(2 * heads)  # D and dt_bias
    if m.norm:
        t.values(t.share(m.inner, "the inner size of a Mamba layer"))


def _groups(t: Tally, m: Mamba2) -> int:
    return m.groups if m.groups % t.tp == 0 else t.tp


def projection_width(t: Tally, m: Mamba2) -> int:
    """Outputs of one rank's input projection."""
    return t.share(2 * m.inner + 2 * _groups(t, m) * m.state + m.heads, "the projection of a Mamba layer")


def mamba1(t: Tally, name: str, fields: Fields, hidden: int, *, norms: bool = False, prefix: str = "mamba_") -> None:
    """The first Mamba; Jamba's has norms on the time step and both state projections."""
    state = fields.size(f"{prefix}d_state", 16, "state_size")
    kernel = fields.size(f"{prefix}d_conv", 4, "conv_kernel")
    stated = fields.optional("intermediate_size") if prefix == "" else None
    inner = stated or fields.size(f"{prefix}expand", 2) * hidden
    rank = fields.get(f"{prefix}dt_rank", fields.get("time_step_rank"))
    steps = rank if isinstance(rank, int) else -(-hidden // 16)
    conv_bias = fields.flag(f"{prefix}conv_bias", fields.flag("use_conv_bias", True))
    bias = fields.flag(f"{prefix}proj_bias", fields.flag("use_bias", False))
    t.column(f"{name}.in_proj", hidden, inner, inner, bias=bias, quantised=False)
    t.row(f"{name}.x_proj", inner, steps + 2 * state, quantised=False)
    t.column(f"{name}.dt_proj", steps, inner, bias=True, quantised=False)
    t.row(f"{name}.out_proj", inner, hidden, bias=bias, quantised=False)
    here = t.share(inner, "the inner size of a Mamba layer")
    t.values(here * kernel + (here if conv_bias else 0) + here)
    t.values(here * state, 4)
    if norms:
        t.values(steps + 2 * state)


class DeltaNet(NamedTuple):
    """One gated delta net layer of Qwen3-Next and Qwen3.5."""

    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int


def delta_net_of(fields: Fields) -> DeltaNet:
    """The sizes a config states."""
    return DeltaNet(
        fields.required("hidden_size"),
        fields.size("linear_num_key_heads"),
        fields.size("linear_num_value_heads"),
        fields.size("linear_key_head_dim"),
        fields.size("linear_value_head_dim"),
        fields.size("linear_conv_kernel_dim"),
    )


def delta_net(t: Tally, name: str, g: DeltaNet, *, parts: bool = True) -> None:
    """Projections, the convolution over q, k and v, the decay in float32, the output norm.

    `parts`: the inputs are merged linears, which have a scale each where they are quantised, not single ones.
    """
    keys, values = g.key_heads * g.key_dim, g.value_heads * g.value_dim
    if parts:
        t.column(f"{name}.in_proj_qkvz", g.hidden, keys, keys, values, values)
        t.column(f"{name}.in_proj_ba", g.hidden, g.value_heads, g.value_heads)
    else:
        t.column(f"{name}.in_proj_qkvz", g.hidden, 2 * keys + 2 * values)
        t.column(f"{name}.in_proj_ba", g.hidden, 2 * g.value_heads)
    t.row(f"{name}.out_proj", values, g.hidden)
    t.values(t.share(2 * keys + values, "the convolution of a delta net") * g.kernel)
    heads = t.share(g.value_heads, "the number of linear-attention heads")
    t.values(heads)  # dt_bias
    t.values(heads, 4)  # A_log
    t.values(g.value_dim)  # norm


def short_conv(t: Tally, name: str, hidden: int, kernel: int, *, bias: bool = False) -> None:
    """LFM2's gated short convolution."""
    t.column(f"{name}.in_proj", hidden, hidden, hidden, hidden, bias=bias)
    t.row(f"{name}.out_proj", hidden, hidden, bias=bias)
    here = t.share(hidden, "the width of a short convolution")
    t.values(here * kernel + (here if bias else 0))
