"""What real starts cost, kept for the next plan: the key a measurement belongs to, how two are merged, how one is used.

Pure. The parts come from a start's own log (launch/startup_log.py); files are launch/measured_store.py's. Activations
are the same only for the same shape, so the key names it beside what decides the rest: release, GPU, architecture,
ranks, token budget, sequences, graphs. Left out: max_model_len, which moves workspaces of MLA and long-rope models
only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.model.spec import ModelSpec
from advisor.overheads import Overheads
from advisor.units import GIB
from advisor.versions import Version, parse_version
from launch.startup_facts import Ranged, StartupFacts

SCHEMA = "kvadvise.measured/1"
ROUNDING_BYTES = GIB // 200  # logs print two decimals of a GiB
_ESTIMATE_IN_PEAK = Version(0, 27, 0)  # v1/worker/gpu_worker.py: peak_activation_memory includes the applied estimate
_KEPT_SOURCES = 8


class MeasuredKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement holds for. `gpu` is the catalogue's name, `shape` the model's (`shape_of`)."""

    vllm_version: str
    gpu: str
    architecture: str
    shape: str
    quantization: str | None
    tensor_parallel_size: int
    pipeline_parallel_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    cuda_graphs: bool

    @property
    def file_name(self) -> str:
        """A readable name that no other key has."""
        digest = hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:8]
        parts = (
            *(f"vllm-{self.vllm_version}", self.gpu, self.architecture, f"tp{self.tensor_parallel_size}"),
            *(f"{self.max_num_batched_tokens}x{self.max_num_seqs}", "graphs" if self.cuda_graphs else "eager", digest),
        )
        return "_".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in parts) + ".json"


class Span(msgspec.Struct, frozen=True):
    """A size over ranks and starts, in bytes: the last start's largest rank, and the ends seen, rounding included."""

    value: int
    low: int
    high: int

    @property
    def estimate(self) -> Estimate:
        """As a plan uses it."""
        return Estimate(self.value, self.low, self.high, "measured")


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What starts with one key cost; a part is None where no log told it. `sources` name the last logs."""

    schema: str = SCHEMA
    key: MeasuredKey
    starts: int = 1
    sources: tuple[str, ...] = ()
    weights: Span | None = None
    activation: Span | None = None
    non_torch: Span | None = None
    cuda_graphs: Span | None = None  # what capturing took; negative where it gave memory back
    cuda_graphs_estimated: Span | None = None  # what vLLM set aside for them
    total: Span | None = None
    free_at_start: Span | None = None

    @property
    def has_overheads(self) -> bool:
        """Whether it says anything that a plan can use."""
        return any(part is not None for part in (self.activation, self.non_torch, self.cuda_graphs))


_PARTS = ("weights", "activation", "non_torch", "cuda_graphs", "cuda_graphs_estimated", "total", "free_at_start")


def shape_of(model: ModelSpec) -> str:
    """The model's dimensions that decide activations, as one word."""
    heads = f"{model.num_heads}-{model.num_kv_heads}x{model.head_size}"
    width = model.intermediate_size or model.moe_intermediate_size or 0
    experts = f"-e{model.num_experts}.{model.experts_per_token}" if model.num_experts else ""
    return f"h{model.hidden_size}-l{model.num_layers}-a{heads}-w{width}-v{model.vocab_size}{experts}"


def measurement(
    facts: StartupFacts, *, gpu: str, shape: str, supplied: Mapping[str, Any] | None = None, source: str = ""
) -> Measurement:
    """What one start's log tells, under its key.

    `supplied` gives what the log does not print (vllm_version, architecture, max_num_seqs, ...); the log wins where
    it does. Raises InvalidInput that names every part of the key that is missing, or says that no cost is printed.
    """
    key = _key(facts, gpu, shape, dict(supplied or {}))
    made = Measurement(
        key=key,
        sources=(source,) if source else (),
        weights=_span(facts.weights_gib),
        activation=_activation(facts),
        non_torch=_non_torch(facts),
        cuda_graphs=_span(facts.graphs_gib) if key.cuda_graphs else None,
        cuda_graphs_estimated=_span(facts.graphs_estimated_gib) if key.cuda_graphs else None,
        total=_span(facts.total_gib),
        free_at_start=_span(facts.free_at_start_gib),
    )
    if not made.has_overheads:
        raise InvalidInput(
            "the log prints no activation, non-torch or graph memory",
            where=source,
            hint="use the log of a start that came up (0.10.2 or newer), or set VLLM_LOGGING_LEVEL=DEBUG",
        )
    return made


def _key(facts: StartupFacts, gpu: str, shape: str, supplied: dict[str, Any]) -> MeasuredKey:
    release = str(facts.release) if facts.release is not None else supplied.get("vllm_version")
    values: dict[str, Any] = {
        "vllm_version": release,
        "architecture": facts.architecture or supplied.get("architecture"),
        "max_num_batched_tokens": facts.max_num_batched_tokens or supplied.get("max_num_batched_tokens"),
        "max_num_seqs": facts.max_num_seqs or supplied.get("max_num_seqs"),
        "tensor_parallel_size": facts.tensor_parallel_size or supplied.get("tensor_parallel_size", 1),
        "pipeline_parallel_size": facts.pipeline_parallel_size or supplied.get("pipeline_parallel_size", 1),
    }
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise InvalidInput(f"the log does not say {', '.join(missing)}", hint="give it, as the server was started with")
    eager = facts.enforce_eager if facts.enforce_eager is not None else bool(supplied.get("enforce_eager", False))
    return MeasuredKey(
        vllm_version=str(parse_version(str(values["vllm_version"]))),
        gpu=gpu,
        architecture=str(values["architecture"]),
        shape=shape,
        quantization=facts.quantization or supplied.get("quantization"),
        tensor_parallel_size=int(values["tensor_parallel_size"]),
        pipeline_parallel_size=int(values["pipeline_parallel_size"]),
        max_num_batched_tokens=int(values["max_num_batched_tokens"]),
        max_num_seqs=int(values["max_num_seqs"]),
        cuda_graphs=not eager and facts.device != "CPU",
    )


def _span(figure: Ranged | None) -> Span | None:
    """A printed figure of all ranks, with its rounding; None where it is not printed."""
    if figure is None:
        return None
    low, high = round(figure.low * GIB), round(figure.high * GIB)
    return Span(high, low - ROUNDING_BYTES, high + ROUNDING_BYTES)


def _activation(facts: StartupFacts) -> Span | None:
    """The profile run's peak, without the graph estimate that releases from 0.27 print in it.

    Up to 0.26 torch's peak; from 0.27 what is needed beyond memory that stays (vLLM utils/mem_utils.py).
    """
    non_kv, consumed = _span(facts.non_kv_gib), _span(facts.consumed_gib)
    if non_kv is not None and consumed is not None:
        return _less(non_kv, consumed)
    if facts.torch_peak_gib is not None:
        return _span(facts.torch_peak_gib)
    peak, release = _span(facts.activation_gib), facts.release
    in_peak = release is not None and release >= _ESTIMATE_IN_PEAK and facts.graphs_applied is not False
    if peak is None or not in_peak or facts.enforce_eager:
        return peak
    estimate = _span(facts.graphs_estimated_gib)
    return _less(peak, estimate) if estimate is not None else None


def _non_torch(facts: StartupFacts) -> Span | None:
    """As printed up to 0.26; from 0.27 consumed memory less the weights."""
    printed = _span(facts.non_torch_gib)
    if printed is not None:
        return printed
    consumed, weights = _span(facts.consumed_gib), _span(facts.weights_gib)
    return _less(consumed, weights) if consumed is not None and weights is not None else None


def _less(whole: Span, part: Span) -> Span:
    """A difference that cannot be negative; the roundings of both add up."""
    value = max(0, whole.value - part.value)
    return Span(value, max(0, min(value, whole.low - part.high)), max(value, whole.high - part.low))


def merge(known: Measurement, new: Measurement) -> Measurement:
    """Two measurements of one key: the new start's value, the ends of both. Raises ValueError for two keys."""
    if known.key != new.key:
        raise ValueError(f"two keys cannot be merged: {known.key.file_name} and {new.key.file_name}")
    sources = tuple(dict.fromkeys((*known.sources, *new.sources)))[-_KEPT_SOURCES:]
    spans: dict[str, Any] = {name: _joined(getattr(known, name), getattr(new, name)) for name in _PARTS}
    return Measurement(key=known.key, starts=known.starts + new.starts, sources=sources, **spans)


def _joined(known: Span | None, new: Span | None) -> Span | None:
    if known is None or new is None:
        return new if known is None else known
    return Span(new.value, min(known.low, new.low), max(known.high, new.high))


def with_measured(predicted: Overheads, known: Measurement) -> Overheads:
    """The predicted costs with what was measured in their place, basis `measured`; what was not stays predicted.

    Graphs count as vLLM's estimate where that is taken from the pool, else as what capturing took.
    """
    graphs = known.cuda_graphs_estimated if predicted.cuda_graphs_in_budget else known.cuda_graphs
    changes = {
        "activation_bytes": known.activation,
        "non_torch_bytes": known.non_torch,
        "cuda_graph_bytes": graphs if known.key.cuda_graphs else None,
    }
    known_parts = {name: _positive(span).estimate for name, span in changes.items() if span is not None}
    return msgspec.structs.replace(predicted, **known_parts)


def _positive(span: Span) -> Span:
    """Capturing may give memory back; a plan does not count on that."""
    return Span(max(0, span.value), max(0, span.low), max(0, span.high))
