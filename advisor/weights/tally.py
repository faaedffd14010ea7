"""Adding up what one rank holds, module by module, in vLLM's own layer vocabulary.

Names are vLLM's module names: a checkpoint's quantisation excludes modules by name. Source: vLLM 0.32
model_executor/layers/linear.py (Column-, Row-, QKVParallelLinear, ReplicatedLinear), vocab_parallel_embedding.py.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from advisor.errors import EngineRefuses
from advisor.weights.quant_formats import PLAIN, Experts, Linear, kernel_padding
from advisor.weights.quantiser import Quantiser

VOCAB_PADDING = 64


class Rank(NamedTuple):
    """What every tensor-parallel rank 0 has in common: how work is divided, and the sizes of an element."""

    tp: int
    expert_tp: int  # ways one expert is cut
    expert_ranks: int  # ways the experts are dealt out
    element_bytes: int
    quantiser: Quantiser
    capability: tuple[int, int]


class Rope(NamedTuple):
    """A rotary table that layers of a stage share; `key` tells two tables of one size apart."""

    key: Hashable
    n_bytes: int


class Bytes(NamedTuple):
    """What vLLM builds, and how much less or more its kernels may leave of it after loading."""

    built: int
    less: int = 0
    more: int = 0


class Tally:
    """Bytes of parameters and buffers on one rank of one stage. `less` and `more`: see Bytes."""

    __slots__ = ("less", "more", "n_bytes", "rank", "ropes", "tp")

    def __init__(self, rank: Rank, *, tp: int | None = None) -> None:
        self.rank = rank
        self.tp = rank.tp if tp is None else tp
        self.n_bytes = 0
        self.less = 0
        self.more = 0
        self.ropes: dict[Hashable, int] = {}

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of the model's dtype."""
        return self.rank.element_bytes

    def share(self, size: int, what: str) -> int:
        """One rank's part of `size`; vLLM refuses a size that does not divide."""
        if size % self.tp:
            raise EngineRefuses(
                "tensor_parallel_not_dividing",
                f"{what} ({size}) cannot be divided among {self.tp} tensor-parallel ranks",
                hint="choose a tensor_parallel_size that divides it",
                source="vLLM distributed/utils.py: divide",
            )
        return size // self.tp

    def values(self, count: int, element_bytes: int | None = None) -> None:
        """Loose elements: norms, biases, buffers, convolution kernels. Not divided."""
        self.n_bytes += count * (self.rank.element_bytes if element_bytes is None else element_bytes)

    def column(self, name: str, inputs: int, *outputs: int, bias: bool = False, quantised: bool = True) -> None:
        """A (merged) column-parallel linear: every output divided, the whole input kept."""
        self._linear(name, inputs, inputs, tuple(self.share(o, name) for o in outputs), bias, quantised)

    def row(self, name: str, inputs: int, outputs: int, *, bias: bool = False, quantised: bool = True) -> None:
        """A row-parallel linear: the input divided; the bias is whole on every rank."""
        self._linear(name, inputs, self.share(inputs, name), (outputs,), bias, quantised)

    def replicated(self, name: str, inputs: int, *outputs: int, bias: bool = False, quantised: bool = True) -> None:
        """A linear that every rank holds whole."""
        self._linear(name, inputs, inputs, outputs, bias, quantised)

    def qkv(
        self,
        name: str,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        v_head_dim: int | None = None,
        *,
        bias: bool = False,
        quantised: bool = True,
    ) -> None:
        """Query, key and value in one: query heads divided, KV heads divided or, when too few, replicated."""
        queries = self.share(heads, "the number of attention heads")
        if self.tp >= kv_heads:
            if self.tp % kv_heads:
                self.share(kv_heads, "the number of KV heads")
            keys = 1
        else:
            keys = self.share(kv_heads, "the number of KV heads")
        outputs = (queries * head_dim, keys * head_dim, keys * (v_head_dim or head_dim))
        self._linear(name, hidden, hidden, outputs, bias, quantised)

    def embedding(self, name: str, vocab: int, width: int) -> None:
        """Token embeddings: the vocabulary padded to 64, then divided."""
        padded = self.share(-(-vocab // VOCAB_PADDING) * VOCAB_PADDING, "the padded vocabulary")
        form = self.rank.quantiser.embedding(name)
        self.n_bytes += form.linear(Linear(width, width, (padded,), self.rank.element_bytes))

    def head(self, name: str, vocab: int, width: int, *, bias: bool = False) -> None:
        """The output head: divided like the embeddings, but some formats quantise it."""
        padded = self.share(-(-vocab // VOCAB_PADDING) * VOCAB_PADDING, "the padded vocabulary")
        form = self.rank.quantiser.head(name)
        self.n_bytes += form.linear(Linear(width, width, (padded,), self.rank.element_bytes))
        if bias:
            self.values(padded)

    def experts(
        self, name: str, count: int, hidden: int, inner: int, *, gated: bool = True, bias: bool = False
    ) -> None:
        """Routed experts: cut by tensor parallelism, or dealt out whole by expert parallelism (rank 0 has most)."""
        rank = self.rank
        if inner % rank.expert_tp:
            raise EngineRefuses(
                "tensor_parallel_not_dividing",
                f"the experts' intermediate size ({inner}) cannot be divided among {rank.expert_tp} ranks",
                hint="choose a tensor_parallel_size that divides it, or enable_expert_parallel",
                source="vLLM model_executor/layers/fused_moe/config.py",
            )
        local = -(-count // rank.expert_ranks)
        shape = Experts(
            local, hidden, inner // rank.expert_tp, 2 if gated else 1, bias, rank.element_bytes, rank.expert_tp
        )
        form = rank.quantiser.experts(name)
        self.n_bytes += form.experts(shape)
        less, more = kernel_padding(form, shape, rank.capability)
        self.less += less
        self.more += more
        if rank.expert_ranks > 1:
            self.values(count, 4)  # the map from global to local expert

    def attention_scales(self, *, latent: bool = False) -> None:
        """The scale buffers of one attention layer, and the parameters that load them from a checkpoint."""
        self.n_bytes += 16 + self.rank.quantiser.kv_scale_bytes(latent, self.rank.element_bytes)

    def copy(self, name: str, count: int) -> None:
        """A copy in the model's dtype that is made of a quantised linear and kept; not among the built bytes."""
        if self.rank.quantiser.linear(name) is not PLAIN:
            self.more += count * self.rank.element_bytes

    def rope(self, table: Rope) -> None:
        """A rotary table; counted once a stage however many layers use it."""
        self.ropes.setdefault(table.key, table.n_bytes)

    def like(self) -> Tally:
        """An empty tally of the same kind, for one of several equal modules; hand it back with `absorb`."""
        return Tally(self.rank, tp=self.tp)

    def absorb(self, other: Tally, times: int = 1) -> None:
        """Add what another tally counted, `times` over; rotary tables stay shared."""
        self.n_bytes += other.n_bytes * times
        self.less += other.less * times
        self.more += other.more * times
        for key, n_bytes in other.ropes.items():
            self.ropes.setdefault(key, n_bytes)

    def total(self) -> Bytes:
        """All bytes, the rotary tables among them."""
        return Bytes(self.n_bytes + sum(self.ropes.values()), self.less, self.more)

    def _linear(
        self, name: str, inputs: int, inputs_here: int, outputs: tuple[int, ...], bias: bool, quantised: bool
    ) -> None:
        form = self.rank.quantiser.linear(name) if quantised else PLAIN
        self.n_bytes += form.linear(Linear(inputs, inputs_here, outputs, self.rank.element_bytes))
        if bias:
            self.values(sum(outputs))
