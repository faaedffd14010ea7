"""Weight bytes of one rank of each pipeline stage: as stated, from the config, or from the checkpoint's size.

The config decides where the architecture is known: the bytes are those of the parameters and buffers that vLLM's own
model class builds. 26 public start-up logs (vLLM 0.10 to 0.19) print at most 0.6 % and 30 MiB more than that, and
models with towers up to 0.6 GiB more, which is what loading leaves behind; the band holds that and what kernels repack
(see quant_formats).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from advisor.errors import NotUnderstood
from advisor.estimate import Basis, Estimate, estimated, measured
from advisor.facts import WeightFacts
from advisor.units import GIB, MIB, bytes_from_gib
from advisor.versions import DEFAULT, Version
from advisor.weights.built import CPU, Asked, Built, build, element_bytes
from advisor.weights.checkpoint import Checkpoint, divided_evenly, embedding_bytes, read_checkpoint
from advisor.weights.family import Family
from advisor.weights.fields import text_fields
from advisor.weights.table import FAMILIES
from advisor.weights.tally import Bytes

_LESS, _MORE = 0.005, 0.007  # of the built bytes, for a known architecture with a complete config
_LEFT_BEHIND = 32 * MIB
_LEFT_BEHIND_BY_TOWERS = 700 * MIB
_FRAGMENT = 0.35  # either way, where class defaults stand in for sizes and no checkpoint says better
_DISAGREES = 0.07
_UNTIES = (0, 31)
_HINT = "state model.weights_gib_per_gpu (a start-up log prints it), or let kvadvise read the checkpoint's headers"
_BUILT = "the parameters and buffers vLLM builds for this config"


class WeightCount(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on tensor-parallel rank 0 of each pipeline stage. `source` says in words where they come from."""

    per_stage: tuple[Estimate, ...]
    basis: Basis
    source: str
    notes: tuple[str, ...] = ()


def weight_bytes(
    config: Mapping[str, Any],
    quant_config: Mapping[str, Any] | None = None,
    *,
    version: Version = DEFAULT,
    tp: int = 1,
    pp: int = 1,
    ep: bool = False,
    dp: int = 1,
    dtype: str | None = None,
    quantization: str | None = None,
    facts: WeightFacts | None = None,
    weights_gib_per_gpu: float | None = None,
    max_model_len: int | None = None,
    capability: tuple[int, int] | None = (9, 0),
    towers: bool = True,
    partition: tuple[int, ...] | None = None,
) -> WeightCount:
    """Weight bytes of a model on one rank of each stage.

    `facts` is the checkpoint's size where it is known, `weights_gib_per_gpu` a figure from a start-up log, which then
    decides. `towers` is false when vision and audio are switched off, `partition` is VLLM_PP_LAYER_PARTITION,
    `capability` None a CPU. Raises NotUnderstood where neither the architecture nor the checkpoint's size is known, or
    a key that decides is unreadable; EngineRefuses for sizes that cannot be divided; InvalidInput for a dtype.
    """
    if weights_gib_per_gpu is not None:
        return _stated(weights_gib_per_gpu, pp)
    asked = Asked(
        config=config, quant_config=quant_config, version=version, tp=tp, pp=pp, dp=dp, ep=ep, dtype=dtype,
        quantization=quantization, max_model_len=max_model_len, capability=capability or CPU, towers=towers,
        partition=partition,
    )  # fmt: skip
    return _counted_or_divided(asked, facts)


def _counted_or_divided(asked: Asked, facts: WeightFacts | None) -> WeightCount:
    """From the config where it is understood, else from the checkpoint."""
    try:
        return _from_config(asked, _family(asked.config), facts)
    except NotUnderstood as error:
        return _from_checkpoint(asked, facts, error)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = NotUnderstood(f"a value in the config is of a kind that no model has ({error})", hint=_HINT)
        return _from_checkpoint(asked, facts, reason)


def _stated(gib: float, pp: int) -> WeightCount:
    """A log prints two decimals of the rank it speaks of; it is taken for every stage."""
    half = 0.005
    one = measured(bytes_from_gib(gib), bytes_from_gib(max(0.0, gib - half)), bytes_from_gib(gib + half))
    return WeightCount(per_stage=(one,) * pp, basis="measured", source="stated as weights_gib_per_gpu")


def _family(config: Mapping[str, Any]) -> Family:
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, (list, tuple)) and names else ""
    family = FAMILIES.get(name)
    if family is None:
        unknown = f"the weights of {name!r} are not known" if name else "the config names no architecture"
        raise NotUnderstood(unknown, where="architectures", hint=_HINT)
    return family


def _from_checkpoint(asked: Asked, facts: WeightFacts | None, reason: NotUnderstood) -> WeightCount:
    """The checkpoint divided among the ranks; without its size there is no number, and `reason` says why."""
    if facts is None:
        raise reason
    size = element_bytes(asked, pooling=False)
    file = read_checkpoint(facts, size, None)
    text = f"{reason.where}: {reason.what}" if reason.where else reason.what
    return WeightCount(
        per_stage=divided_evenly(file.n_bytes, embedding_bytes(asked.config, size), asked.tp, asked.pp),
        basis="estimated",
        source=f"the checkpoint's size ({facts.source or facts.basis}), divided among the ranks",
        notes=(f"weights are the checkpoint's {_gib(file.n_bytes)} divided among the ranks: {text}",),
    )


def _from_config(asked: Asked, family: Family, facts: WeightFacts | None) -> WeightCount:
    """What vLLM's model class builds, set beside the checkpoint."""
    built = build(asked, family)
    if facts is None:
        return _counted([_band(b, built) for b in built.stages], built.notes) if not built.missing else _guess(built)
    layers = text_fields(asked.config).size("num_hidden_layers", 0)
    file = read_checkpoint(facts, element_bytes(asked, family.pooling), layers)
    if facts.basis == "gguf":
        return _in_proportion(asked, family, built, file, "GGUF tensors are kept as the file stores them")
    if built.missing:
        return _in_proportion(asked, family, built, file, f"the config lacks {', '.join(built.missing)}")
    bands, notes = [_band(b, built) for b in built.stages], list(built.notes)
    if file.has_head and asked.version >= _UNTIES:
        untied = build(asked, family, untied=True).stages
        if untied != built.stages:
            notes.append("the checkpoint has an output head although the config ties it: it stays if it differs")
            bands = [_reaching(a, _band(b, built)) for a, b in zip(bands, untied, strict=True)]
    return _compared(asked, family, bands, file, notes)


def _counted(bands: Sequence[Estimate], notes: Sequence[str]) -> WeightCount:
    return WeightCount(per_stage=tuple(bands), basis="estimated", source=_BUILT, notes=tuple(notes))


def _guess(built: Built) -> WeightCount:
    """A config without some sizes, and nothing else: class defaults, as vLLM would."""
    bands = [
        estimated(b.built, round(b.built * (1 - _FRAGMENT)), round(b.built * (1 + _FRAGMENT))) for b in built.stages
    ]
    keys = ", ".join(built.missing)
    note = f"the config lacks {keys}: class defaults are taken, as vLLM would, in a band of a third either way"
    return _counted(bands, [*built.notes, note])


def _in_proportion(asked: Asked, family: Family, built: Built, file: Checkpoint, why: str) -> WeightCount:
    """The checkpoint's size in the proportions of what the config describes.

    One rank holds the file; a rank of several may hold more or less of what the config leaves out.
    """
    times = file.n_bytes / _as_stored(asked, family).built
    room = 0.03 if asked.tp * asked.pp == 1 else 0.1
    bands = []
    for b in built.stages:
        value, more = round(b.built * times), round(b.more * times)
        bands.append(estimated(value, round(value * (1 - room)), round(value * (1 + room)) + more))
    return WeightCount(
        per_stage=tuple(bands),
        basis="estimated",
        source="the checkpoint's size, divided as vLLM divides what the config describes",
        notes=(*built.notes, f"{why}: the checkpoint's {_gib(file.n_bytes)} decide"),
    )


def _as_stored(asked: Asked, family: Family) -> Bytes:
    """The whole model on one rank, before any quantisation while loading."""
    return build(msgspec.structs.replace(asked, quantization=None), family, whole=True).stages[0]


def _band(b: Bytes, built: Built) -> Estimate:
    left = _LEFT_BEHIND_BY_TOWERS if built.has_towers else _LEFT_BEHIND
    low = round(b.built * (1 - _LESS - built.loose)) - b.less
    return estimated(b.built, low, round(b.built * (1 + _MORE + built.loose)) + b.more + left)


def _reaching(a: Estimate, b: Estimate) -> Estimate:
    return estimated(a.value, min(a.low, b.low), max(a.high, b.high))


def _compared(
    asked: Asked, family: Family, bands: Sequence[Estimate], file: Checkpoint, notes: list[str]
) -> WeightCount:
    """The bands, or wider ones and a note where the checkpoint is of another size than the config says."""
    if file.is_downcast:
        notes.append("the checkpoint is stored in 32 bits and loaded in 16")
    whole = _as_stored(asked, family)
    head = embedding_bytes(asked.config, element_bytes(asked, family.pooling))  # a tied head may be stored twice
    least, most = (whole.built - whole.less) * (1 - _DISAGREES), (whole.built + head) * (1 + _DISAGREES)
    if not least <= file.n_bytes <= most:
        notes.append(
            f"the checkpoint has {_gib(file.n_bytes)}, what the config describes {_gib(whole.built)}: "
            "the config decides, in a band that reaches to the checkpoint"
        )
        times = file.n_bytes / whole.built
        bands = [
            estimated(b.value, min(b.low, round(b.low * times)), max(b.high, round(b.high * times))) for b in bands
        ]
    return _counted(bands, notes)


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.2f} GiB"
