"""From somebody's log to a measurement: whose it is (log, then options, then profile) and what its start cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.errors import InvalidInput

if TYPE_CHECKING:
    from advisor.facts import ModelFacts
    from advisor.gpu import Gpu
    from advisor.measured import Measurement
    from advisor.workload import WorkloadFile
    from launch.startup_facts import StartupFacts

_DISTURBED = frozenset({"neighbour-loading", "neighbour-changed"})
_NO_MODEL_NAMES = ("", "None")


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the user says beside the log."""

    gpu: str | None = None
    model: str | None = None
    pins: dict[str, Any] = {}
    profile: WorkloadFile | None = None
    base_dir: Path = Path()


def read_pins(words: Sequence[str]) -> dict[str, Any]:
    """Engine arguments from `name=value`, values as YAML. Raises InvalidInput for what is none."""
    import yaml

    pins: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if not equals or not name:
            raise InvalidInput(f"{word!r} is no argument", where="--pin", hint="write name=value: max_num_seqs=256")
        try:
            pins[name] = value.strip() if name == "vllm_version" else yaml.safe_load(value)
        except yaml.YAMLError:
            raise InvalidInput(f"{value!r} is no YAML", where=f"--pin {name}") from None
    return pins


def measure(lines: Sequence[str], given: Given, *, where: str, source: str, kept_on: str) -> Measurement:
    """What the last start in a log cost, under its key; `where` names the log in messages, `source` in the store.

    Raises InvalidInput where the log is of no start, of one that failed or that a neighbour disturbed, where it and
    what is given leave the key open (everything missing at once), or where they contradict each other.
    """
    from advisor.model.read import read_model
    from advisor.versions import NEWEST
    from launch.measured import measurement
    from launch.measured_key import key_from_log, release_of
    from launch.startup_log import is_empty, read_startup

    said = read_startup(lines)
    if is_empty(said):
        raise InvalidInput("shows no start of vLLM", where=where, hint="give the engine's own log from its start")
    _check_started(lines, where)
    given = _with_profile(given)
    _check_whole(said, given, where)
    try:
        release = release_of(said, given.pins)
        model = read_model(_model(said, given, where), min(release or NEWEST, NEWEST))
        key = key_from_log(said, model, _gpu(given), _known_pins(given.pins))
        return measurement(said, key, source=source, kept_on=kept_on)
    except InvalidInput as error:
        raise InvalidInput(error.what, where=error.where or where, hint=error.hint) from None


def _check_started(lines: Sequence[str], where: str) -> None:
    from launch.diagnosis import diagnose

    for finding in diagnose(lines):
        if finding.severity == "error":
            raise InvalidInput(
                f"is the log of a start that failed ({finding.code})", where=where, hint="give one that came up"
            )
        if finding.code in _DISTURBED:
            raise InvalidInput(
                f"is the log of a start that a neighbour disturbed ({finding.code})",
                where=where,
                hint="vLLM counted the other's memory as its own; give the log of a start alone",
            )


def _with_profile(given: Given) -> Given:
    """Arguments that the profile pins, where none are given."""
    pins = given.profile.engine if given.profile is not None else {}
    return msgspec.structs.replace(given, pins=dict(pins) | given.pins)


def _check_whole(said: StartupFacts, given: Given, where: str) -> None:
    from launch.measured_key import missing_parts

    missing, options = [], []
    if given.gpu is None and given.profile is None and said.device != "CPU":
        missing.append("which GPU it was")
        options.append("--gpu NAME")
    if given.model is None and given.profile is None and said.model in (None, *_NO_MODEL_NAMES):
        missing.append("which model it was")
        options.append("--model ID")
    for name in missing_parts(said, given.pins):
        missing.append(name)
        options.append(f"--pin {name}=...")
    if missing:
        raise InvalidInput(
            f"does not say {', '.join(missing)}",
            where=where,
            hint=f"add {' '.join(options)}, or --profile with the workload it was started for",
        )


def _model(said: StartupFacts, given: Given, where: str) -> ModelFacts:
    from advisor.workload import ModelRef
    from kvadvise.sources import resolve_model

    if given.model is not None:
        return resolve_model(ModelRef(id=given.model), base_dir=Path.cwd(), where="--model")
    if given.profile is not None:
        return resolve_model(given.profile.model, base_dir=given.base_dir, where=f"{given.profile.file}: model")
    try:
        return resolve_model(ModelRef(id=str(said.model)), base_dir=Path.cwd())
    except InvalidInput as error:
        raise InvalidInput(
            f"its model {said.model} is not known here: {error.what}",
            where=where,
            hint="name it with --model: a hub id, a catalogue name or a directory",
        ) from None


def _gpu(given: Given) -> Gpu:
    from advisor.workload import GpuRef
    from kvadvise.gpus import resolve_gpu

    if given.gpu is not None:
        return resolve_gpu(GpuRef(name=given.gpu), where="--gpu")
    if given.profile is not None:
        return resolve_gpu(given.profile.gpu, where=f"{given.profile.file}: gpu")
    return resolve_gpu(GpuRef(name="cpu"))


def _known_pins(pins: dict[str, Any]) -> dict[str, Any]:
    """The arguments as a plan takes them. Raises InvalidInput for a name that no release has."""
    from advisor.argument_table import ARGUMENT_RELEASES
    from advisor.arguments import check_pins
    from advisor.versions import NEWEST

    for name in pins:
        if name != "vllm_version" and name not in ARGUMENT_RELEASES:
            [unknown, *_] = check_pins({name: pins[name]}, NEWEST)
            raise InvalidInput(unknown.message, where="--pin", hint=unknown.hint)
    return pins
