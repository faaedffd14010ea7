"""What real starts cost, as a plan uses it: the key a measurement holds for, and costs taken from it.

Activations are the same only for the same shape, dtype and settings, so the key names them beside release, GPU,
architecture, ranks, token budget, sequences and graphs. Left out: max_model_len, which moves workspaces of MLA and
long-rope models only, and the weights, which differ between checkpoints of one shape.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from advisor.engine import Engine
from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.model.spec import ModelSpec
from advisor.overheads import Overheads
from advisor.units import GIB

SCHEMA = "kvadvise.measured/1"
LARGEST_BYTES = 64 * 1024  # of a file; a measurement has 2 KiB
ROUNDING_BYTES = GIB // 200  # logs print two decimals of a GiB
BETWEEN_STARTS = 50  # a fiftieth each way: starts of one key repeat to the last digit in public logs, drivers may not

# Arguments beside the key's own that move activations, memory outside torch or graphs.
_COSTLY = (
    *("limit_mm_per_prompt", "mm_processor_kwargs", "language_model_only", "enable_lora", "max_loras"),
    *("max_lora_rank", "speculative_config", "enable_expert_parallel", "data_parallel_size", "compilation_config"),
    *("cudagraph_capture_sizes", "max_cudagraph_capture_size", "cudagraph_mode", "decode_context_parallel_size"),
    *("attention_backend", "attention_config", "disable_custom_all_reduce", "cpu_offload_gb", "enable_dbo"),
    *("kv_transfer_config", "hf_overrides", "async_scheduling", "kernel_config"),
)


class MeasuredKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement holds for. `gpu` is the catalogue's name, `shape` the model's (`shape_of`), `settings` the
    other arguments that move costs, where they are not vLLM's own.
    """

    vllm_version: str
    gpu: str
    architecture: str
    shape: str
    dtype: str
    quantization: str | None
    tensor_parallel_size: int
    pipeline_parallel_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    cuda_graphs: bool
    settings: dict[str, Any] = {}

    @property
    def file_name(self) -> str:
        """A readable name that no other key has."""
        digest = hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:8]
        parts = (
            *(f"vllm-{self.vllm_version}", self.gpu, self.architecture, f"tp{self.tensor_parallel_size}"),
            *(f"{self.max_num_batched_tokens}x{self.max_num_seqs}", "graphs" if self.cuda_graphs else "eager", digest),
        )
        return "_".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-.")[:60] for part in parts) + ".json"


class Span(msgspec.Struct, frozen=True):
    """A size over ranks and starts, in bytes: the last start's largest rank, and the ends seen, rounding included."""

    value: int
    low: int
    high: int

    @property
    def estimate(self) -> Estimate:
        """As a plan uses it: never negative (capturing may give memory back, a plan does not count on that), and a
        little wider than what was seen.
        """
        value, low, high = max(0, self.value), max(0, self.low), max(0, self.high)
        return Estimate(value, low - low // BETWEEN_STARTS, high + high // BETWEEN_STARTS, "measured")


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What starts with one key cost; a part is None where nothing told it. `sources` name the last starts or logs,
    `kept_on` is when the last was kept (UTC, ISO 8601).
    """

    schema: str = SCHEMA
    key: MeasuredKey
    starts: int = 1
    kept_on: str = ""
    sources: tuple[str, ...] = ()
    weights: Span | None = None
    activation: Span | None = None
    non_torch: Span | None = None  # on a CPU: what the processes hold besides weights and cache
    cuda_graphs: Span | None = None  # what capturing took; negative where it gave memory back
    cuda_graphs_estimated: Span | None = None  # what vLLM set aside for them
    total: Span | None = None
    free_at_start: Span | None = None

    @property
    def has_overheads(self) -> bool:
        """Whether it says anything that a plan can use."""
        return any(part is not None for part in (self.activation, self.non_torch, self.cuda_graphs))

    def __post_init__(self) -> None:
        if self.starts < 1:
            raise ValueError("a measurement is of one start at least")
        for name in PARTS:
            span = getattr(self, name)
            if span is not None and not span.low <= span.value <= span.high:
                raise ValueError(f"the ends of {name} do not hold its value")


PARTS = ("weights", "activation", "non_torch", "cuda_graphs", "cuda_graphs_estimated", "total", "free_at_start")


def shape_of(model: ModelSpec) -> str:
    """The model's dimensions that decide activations, as one word."""
    heads = f"{model.num_heads}-{model.num_kv_heads}x{model.head_size}"
    width = model.intermediate_size or model.moe_intermediate_size or 0
    experts = f"-e{model.num_experts}.{model.experts_per_token}" if model.num_experts else ""
    return f"h{model.hidden_size}-l{model.num_layers}-a{heads}-w{width}-v{model.vocab_size}{experts}"


def key_of(model: ModelSpec, engine: Engine, release: str) -> MeasuredKey:
    """The key of a start with these arguments on `release`, which may be newer than the one planned as."""
    settings = costly_settings(engine.pinned, engine.kv_cache_dtype)
    if engine.gpu.is_cpu and engine.enforce_eager:  # without it the processes hold what inductor compiled
        settings["enforce_eager"] = True
    return MeasuredKey(
        vllm_version=release,
        gpu=engine.gpu.name,
        architecture=model.architecture,
        shape=shape_of(model),
        dtype=engine.dtype,
        quantization=engine.quantization or model.quantization.method,
        tensor_parallel_size=engine.tensor_parallel_size,
        pipeline_parallel_size=engine.pipeline_parallel_size,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        cuda_graphs=not (engine.enforce_eager or engine.gpu.is_cpu),
        settings=settings,
    )


def costly_settings(pins: dict[str, Any], kv_cache_dtype: str = "auto") -> dict[str, Any]:
    """Of engine arguments those that belong to a key, in the form that a file gives back."""
    said = {name: pins[name] for name in _COSTLY if _says_something(pins.get(name))}
    if kv_cache_dtype != "auto":
        said["kv_cache_dtype"] = kv_cache_dtype
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(said, order="deterministic", enc_hook=str))
    return plain


def _says_something(value: Any) -> bool:
    """Whether an argument is more than left out: vLLM's own values of those above are off, none, 0 or 1."""
    return value is True or not ((isinstance(value, int) and value <= 1) or value in (None, "", {}, []))


def decode_measurement(data: bytes, where: str, key: MeasuredKey | None = None) -> Measurement:
    """A measurement from its file's bytes. Raises InvalidInput for what is none, or is another key's."""
    try:
        read = msgspec.json.decode(data, type=Measurement)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(
            f"is no measurement: {error}", where=where, hint="delete it; the next start makes it anew"
        ) from None
    if read.schema != SCHEMA:
        raise InvalidInput(f"schema {read.schema!r}, {SCHEMA!r} expected", where=where, hint="delete it")
    if key is not None and read.key != key:
        raise InvalidInput("holds another key than its name says", where=where, hint="delete it")
    return read


def find_measurement(known: Iterable[Measurement], key: MeasuredKey) -> Measurement | None:
    """The measurement of a key among those that were read; None where there is none."""
    return next((one for one in known if one.key == key), None)


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
    known_parts = {name: span.estimate for name, span in changes.items() if span is not None}
    return msgspec.structs.replace(predicted, **known_parts)
