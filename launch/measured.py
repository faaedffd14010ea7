"""From a start's own log to a measurement for the next plan, and two of one key put together. Pure.

The key is the plan's, corrected by what the engine says of itself (`observed_key`), or made from the log alone
(launch/measured_key.py). How a plan uses a measurement is advisor/measured.py's, files are launch/measured_store.py's.
"""

from __future__ import annotations

from typing import Any

import msgspec

from advisor.errors import InvalidInput
from advisor.measured import PARTS, ROUNDING_BYTES, MeasuredKey, Measurement, Span, costly_settings
from advisor.units import GIB
from advisor.versions import Version
from launch.startup_facts import Ranged, StartupFacts

_ESTIMATE_IN_PEAK = Version(0, 27, 0)  # v1/worker/gpu_worker.py: peak_activation_memory includes the applied estimate
_KEPT_SOURCES = 8
_SAME_GPU = 0.04  # of its memory: what the driver keeps back differs a little


def measurement(
    facts: StartupFacts, key: MeasuredKey, *, source: str = "", kept_on: str = "", processes: Span | None = None
) -> Measurement:
    """What one start cost, under its key.

    `processes` is what the engine's processes were seen to hold besides weights and cache, which a CPU's log does not
    print. Raises InvalidInput where nothing tells a cost.
    """
    made = Measurement(
        key=key,
        kept_on=kept_on,
        sources=(source,) if source else (),
        weights=_span(facts.weights_gib),
        activation=_activation(facts),
        non_torch=processes or _non_torch(facts),
        cuda_graphs=_span(facts.graphs_gib) if key.cuda_graphs else None,
        cuda_graphs_estimated=_span(facts.graphs_estimated_gib) if key.cuda_graphs else None,
        total=_span(facts.total_gib),
        free_at_start=_span(facts.free_at_start_gib),
    )
    if not made.has_overheads:
        raise InvalidInput("the log prints no activation, non-torch or graph memory", hint=_hint(facts))
    return made


def _hint(facts: StartupFacts) -> str:
    if facts.device == "CPU":
        return "vLLM does not print them for a CPU; `kvadvise launch` looks at the processes itself"
    return "use the log of a start that came up (0.10.2 or newer), or set VLLM_LOGGING_LEVEL=DEBUG"


def observed_key(planned: MeasuredKey, facts: StartupFacts) -> MeasuredKey:
    """The key a plan's start really had: what the engine says of release, batch, ranks, graphs and settings wins."""
    seen = {
        "vllm_version": str(facts.release) if facts.release is not None else None,
        "tensor_parallel_size": facts.tensor_parallel_size,
        "pipeline_parallel_size": facts.pipeline_parallel_size,
        "max_num_batched_tokens": facts.max_num_batched_tokens,
        "max_num_seqs": facts.max_num_seqs,
        "cuda_graphs": _has_graphs(facts),
        "settings": costly_settings(facts.args or {}) | planned.settings,
    }
    return msgspec.structs.replace(planned, **{name: value for name, value in seen.items() if value is not None})


def _has_graphs(facts: StartupFacts) -> bool | None:
    if facts.device == "CPU":
        return False
    return None if facts.enforce_eager is None else not facts.enforce_eager


def other_gpu(facts: StartupFacts, total_bytes: int) -> str:
    """How a log contradicts that its GPU has so much memory; empty where it does not."""
    total = facts.total_gib
    if total is None or abs(total.high * GIB - total_bytes) <= _SAME_GPU * total_bytes:
        return ""
    return f"the log is of a GPU with {total.high:.2f} GiB, not {total_bytes / GIB:.2f} GiB"


def process_span(held_bytes: int, weights_bytes: int, pool_bytes: int) -> Span | None:
    """What a CPU engine's processes hold beside weights and cache, from their proportional sets once it is ready.

    The pool counts whole: it is written to before that (0.32: 1,355 MiB beside a pool of 64 MiB, 1,364 beside 2 GiB).
    None where that leaves nothing, so where it was not.
    """
    left = held_bytes - weights_bytes - pool_bytes
    return Span(left, left, left) if left > 0 else None


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
    spans: dict[str, Any] = {name: _joined(getattr(known, name), getattr(new, name)) for name in PARTS}
    return Measurement(
        key=known.key,
        starts=known.starts + new.starts,
        kept_on=new.kept_on or known.kept_on,
        sources=sources,
        **spans,
    )


def _joined(known: Span | None, new: Span | None) -> Span | None:
    if known is None or new is None:
        return new if known is None else known
    return Span(new.value, min(known.low, new.low), max(known.high, new.high))
