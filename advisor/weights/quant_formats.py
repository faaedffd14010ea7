"""Bytes of one linear layer, and of one layer's experts, in each format vLLM builds.

Sizes are those of `create_weights` (vLLM 0.32 model_executor/layers/quantization/), before a kernel repacks them.
Scales are float32 unless said otherwise. Left out: padding by Marlin after loading, copies made for MLA absorption.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from advisor.errors import EngineRefuses


class Linear(NamedTuple):
    """One linear on one rank: inputs in full and here, the outputs of each merged part here, bytes of an element."""

    inputs: int
    inputs_here: int
    outputs: tuple[int, ...]
    element_bytes: int

    @property
    def weights(self) -> int:
        """Elements of the weight."""
        return self.inputs_here * sum(self.outputs)


class Experts(NamedTuple):
    """The `local` experts of one layer on one rank; `inner` is one rank's part, `shards` 2 when gated."""

    local: int
    hidden: int
    inner: int
    shards: int
    bias: bool
    element_bytes: int
    cut: int  # tensor-parallel ways one expert is cut

    @property
    def weights(self) -> int:
        """Elements of both projections."""
        return self.local * self.hidden * self.inner * (self.shards + 1)

    def bias_bytes(self, element_bytes: int | None = None) -> int:
        """Bytes of the experts' biases, 0 without them."""
        if not self.bias:
            return 0
        return self.local * (self.shards * self.inner + self.hidden) * (element_bytes or self.element_bytes)


class Format(Protocol):
    """How a layer is stored."""

    def linear(self, x: Linear) -> int:
        """Bytes of a linear's weight and scales, without its bias."""

    def experts(self, x: Experts) -> int:
        """Bytes of all local experts with scales and biases."""


class Plain:
    """The model's own dtype."""

    def linear(self, x: Linear) -> int:
        """Weight only."""
        return x.weights * x.element_bytes

    def experts(self, x: Experts) -> int:
        """Weights and biases."""
        return x.weights * x.element_bytes + x.bias_bytes()


PLAIN = Plain()


class Fp8Tensor(NamedTuple):
    """One byte a weight, one scale a merged part; `static` adds an input scale (fp8.py, modelopt.py FP8)."""

    static: bool

    def linear(self, x: Linear) -> int:
        """Weight, weight scales, input scales."""
        return x.weights + 4 * len(x.outputs) * (2 if self.static else 1)

    def experts(self, x: Experts) -> int:
        """Weights, a scale a projection, input scales."""
        return x.weights + 4 * x.local * (x.shards + 1 + (2 if self.static else 0)) + x.bias_bytes()


class Fp8Channel(NamedTuple):
    """One byte a weight, one scale an output row (compressed-tensors channel, FP8_PER_CHANNEL_PER_TOKEN, int8)."""

    static: bool = False

    def linear(self, x: Linear) -> int:
        """Weight, weight scales, input scales."""
        return x.weights + 4 * sum(x.outputs) + (4 * len(x.outputs) if self.static else 0)

    def experts(self, x: Experts) -> int:
        """Weights, a scale a row."""
        rows = x.shards * x.inner + x.hidden
        return x.weights + 4 * x.local * (rows + (2 if self.static else 0)) + x.bias_bytes()


class Fp8Block(NamedTuple):
    """One byte a weight, one scale a block. `refines`: the block shrinks where a rank's part is not whole blocks."""

    rows: int
    columns: int
    refines: bool = True
    scale_bytes: int = 4

    def linear(self, x: Linear) -> int:
        """Weight and block scales."""
        blocks = _blocks(sum(x.outputs), self.rows) * _blocks(x.inputs_here, self.columns)
        return x.weights + self.scale_bytes * blocks

    def experts(self, x: Experts) -> int:
        """Weights and block scales (oracle/fp8.py: refine_fp8_moe_block_shape, pad_tp_shard_to_weight_blocks)."""
        rows, columns, inner = self.rows, self.columns, x.inner
        if self.refines and (inner % rows or (x.cut > 1 and inner % columns)):
            step = math.gcd(rows, columns, inner, x.hidden)
            if step >= 32:
                rows = columns = step
            elif rows == columns and x.cut > 1:
                inner = _blocks(inner, rows) * rows
        first = x.shards * _blocks(inner, rows) * _blocks(x.hidden, columns)
        second = _blocks(x.hidden, rows) * _blocks(inner, columns)
        weights = x._replace(inner=inner).weights
        return weights + 4 * x.local * (first + second) + x.bias_bytes()


class Nvfp4(NamedTuple):
    """Half a byte a weight, an fp8 scale a group, a global scale a part (modelopt.py and compressed-tensors NVFP4).

    `inputs`: bytes an input scale takes a merged part, 4 for W4A4, the model's dtype (0 here) for modelopt W4A16.
    """

    group: int = 16
    input_scale: str = "float"  # float, model, none

    def _input(self, element_bytes: int) -> int:
        return {"float": 4, "model": element_bytes, "none": 0}[self.input_scale]

    def linear(self, x: Linear) -> int:
        """Packed weight, group scales, global and input scales."""
        rows = sum(x.outputs)
        scales = 4 * len(x.outputs) + self._input(x.element_bytes) * len(x.outputs)
        return rows * (x.inputs_here // 2) + rows * (x.inputs_here // self.group) + scales

    def experts(self, x: Experts) -> int:
        """Packed weights, group scales, global and input scales an expert."""
        first, second = x.shards * x.inner, x.hidden
        packed = first * (x.hidden // 2) + second * (x.inner // 2)
        groups = first * (x.hidden // self.group) + second * (x.inner // self.group)
        return x.local * (packed + groups + 8 * (x.shards + 1)) + x.bias_bytes()


class Mxfp8(NamedTuple):
    """One byte a weight and one byte a group of 32."""

    def linear(self, x: Linear) -> int:
        """Weight and scales."""
        return x.weights + sum(x.outputs) * (x.inputs_here // 32)

    def experts(self, x: Experts) -> int:
        """Weights and scales."""
        return (
            x.weights + x.local * (x.shards * x.inner * (x.hidden // 32) + x.hidden * (x.inner // 32)) + x.bias_bytes()
        )


class Mxfp4(NamedTuple):
    """Half a byte a weight and one byte a group of 32; experts padded to what the kernel wants (oracle/mxfp4.py)."""

    inner_step: int = 1
    hidden_step: int = 1
    bias_bytes: int | None = None  # gpt-oss keeps its biases in bfloat16 whatever the dtype

    def linear(self, x: Linear) -> int:
        """Packed weight and scales."""
        return sum(x.outputs) * (x.inputs_here // 2 + x.inputs_here // 32)

    def experts(self, x: Experts) -> int:
        """Padded, packed weights, scales, biases."""
        padded = x._replace(
            inner=_blocks(x.inner, self.inner_step) * self.inner_step,
            hidden=_blocks(x.hidden, self.hidden_step) * self.hidden_step,
        )
        first, second = padded.shards * padded.inner, padded.hidden
        packed = first * (padded.hidden // 2) + second * (padded.inner // 2)
        scales = first * (padded.hidden // 32) + second * (padded.inner // 32)
        return padded.local * (packed + scales) + padded.bias_bytes(self.bias_bytes)


class PackedInt(NamedTuple):
    """Weights packed into 32-bit words with a scale a group, in AWQ's, GPTQ's or compressed-tensors' layout.

    group -1 is one scale a channel. AWQ and GPTQ keep zero points always, compressed-tensors only when asymmetric;
    GPTQ experts have biases even when the model has none (auto_gptq.py).
    """

    bits: int
    group: int
    layout: str  # awq, gptq, packed
    zero_points: bool = True
    expert_zero_points: bool = True  # in experts whose groups do not fit (moe_wna16.py)

    def linear(self, x: Linear) -> int:
        """Packed weight, scales, zero points."""
        rows = sum(x.outputs)
        group = self.group if self.group > 0 else x.inputs
        groups = x.inputs_here // group if self.group > 0 else 1
        words = rows * math.ceil(x.inputs_here * self.bits / 32)
        zeros = groups * (rows * self.bits // 32) if self.zero_points else 0
        shape = 16 if self.layout == "packed" else 0  # the original shape, two int64
        return 4 * (words + zeros) + groups * rows * x.element_bytes + shape

    def experts(self, x: Experts) -> int:
        """Packed weights, scales, zero points, shapes."""
        if self.layout != "packed" and not self._fits(x):
            return self._halved(x)
        first, second = x.shards * x.inner, x.hidden
        up_groups = x.hidden // self.group if self.group > 0 else 1
        down_groups = x.inner // self.group if self.group > 0 else 1
        weights = (first * x.hidden + second * x.inner) * self.bits // 8
        scales = (first * up_groups + second * down_groups) * x.element_bytes
        zeros = (first * up_groups + second * down_groups) * self.bits // 8 if self.zero_points else 0
        shapes = 4 * x.element_bytes if self.layout == "packed" else 0
        bias = (first + second) * x.element_bytes if self.layout == "gptq" else 0
        return x.local * (weights + scales + zeros + shapes + bias) + (0 if bias else x.bias_bytes())

    def _fits(self, x: Experts) -> bool:
        """Whether Marlin takes these experts (marlin_utils.py: check_moe_marlin_supports_config)."""
        group = self.group
        return x.hidden % 128 == 0 and (group <= 0 or x.inner % group == 0) and group in (-1, 32, 64, 128)

    def _halved(self, x: Experts) -> int:
        """Groups halved until they divide both sizes (moe_wna16.py: create_weights); no biases."""
        group = self.group
        while group >= 32 and (x.inner % group or x.hidden % group):
            group //= 2
        if group < 32:
            raise EngineRefuses(
                "quantisation_groups_not_dividing",
                f"no group of 32 or more divides both the experts' {x.inner} and {x.hidden}",
                hint="choose another tensor_parallel_size, or enable_expert_parallel",
                source="vLLM layers/quantization/moe_wna16.py",
            )
        first, second = x.shards * x.inner, x.hidden
        weights = (first * x.hidden + second * x.inner) * self.bits // 8
        groups = first * (x.hidden // group) + second * (x.inner // group)
        zeros = groups * self.bits // 8 if self.expert_zero_points else 0
        return x.local * (weights + groups * x.element_bytes + zeros)


class Nf4(NamedTuple):
    """bitsandbytes 4 bit: half a byte a weight, a float32 scale a block of 64 (quant states kept by the loader)."""

    bits: int = 4

    def linear(self, x: Linear) -> int:
        """Packed weight and block scales, unnested."""
        return x.weights if self.bits == 8 else x.weights // 2 + 4 * (x.weights // 64)

    def experts(self, x: Experts) -> int:
        """As the linears."""
        return (x.weights if self.bits == 8 else x.weights // 2 + 4 * (x.weights // 64)) + x.bias_bytes()


def kernel_padding(form: Format, x: Experts, capability: tuple[int, int]) -> tuple[int, int]:
    """Bytes that another kernel than the counted one would leave out or add to these experts.

    MXFP4 is counted as for Marlin; Triton on Hopper pads a rank's part to 64 only (gpt-oss on H100 logs lie between).
    Unquantised experts on Blackwell are padded to 128 for TRT-LLM's kernel (oracle/unquantized.py).
    """
    if isinstance(form, Mxfp4) and form.inner_step == 128:
        return form.experts(x) - form._replace(inner_step=64).experts(x), 0
    if form is PLAIN and capability[0] == 10 and x.inner % 128:
        return 0, form.experts(x._replace(inner=_blocks(x.inner, 128) * 128)) - form.experts(x)
    return 0, 0


def _blocks(size: int, step: int) -> int:
    return -(-size // step)
