"""Before a start: the model, its tokenizer and its draft model are here and whole, or can be had."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from advisor.plan_types import Finding, Severity
from launch.engine_command import option_value
from launch.host import Host
from launch.hub_cache import ModelPlace, find_model
from launch.weight_files import FileProblem, weight_problems

_TOKENIZERS = (
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt", "spiece.model",
    "tekken.json", "tiktoken.model", "sentencepiece.bpe.model",
)  # fmt: skip
_OTHER_LOADERS = frozenset({"dummy", "runai_streamer", "runai_streamer_sharded", "tensorizer", "sharded_state"})
_WITHOUT_DRAFT = frozenset({"ngram", "ngram_gpu", "suffix", "mtp"})
_AGAIN = "download it again: huggingface-cli download"
_SHOWN = 3


def check_model(model: str, words: Sequence[str], host: Host, cwd: Path | None = None) -> list[Finding]:
    """What is wrong with the files of a start: every broken one of the model, then of the draft model."""
    revision = option_value(words, "--revision")
    loader = option_value(words, "--load-format") or "auto"
    place = find_model(model, host.env, revision, cwd)
    found = _place(model, place, host, "model")
    if place.folder is not None and not found:
        found += _config(place, model)
        if loader not in _OTHER_LOADERS:
            found += _weights(place, model, host)
        if "--skip-tokenizer-init" not in [w.replace("_", "-") for w in words]:
            found += _tokenizer(place, words)
    return found + _draft(words, host, cwd)


def to_download(model: str, words: Sequence[str], host: Host) -> bool:
    """Whether vLLM will fetch the weights at start: a hub id whose files are not all in the cache."""
    place = find_model(model, host.env, option_value(words, "--revision"))
    if host.is_offline or place.kind not in ("absent", "cache"):
        return False
    return place.folder is None or any(p.kind == "missing" for p in weight_problems(place.folder))


def _place(model: str, place: ModelPlace, host: Host, role: str) -> list[Finding]:
    code = "model-missing" if role == "model" else "draft-model-missing"
    if place.kind == "missing":
        return [
            _finding(code, "error", f"the {role} {model} is no directory here and no name of the hub", _nearby(model))
        ]
    if place.kind == "absent" and host.is_offline:
        return [
            _finding(
                "hub-offline" if role == "model" else code,
                "error",
                f"the {role} {model} is not in the hub cache, and the hub is switched off (HF_HUB_OFFLINE)",
                f"fetch it where there is a network (huggingface-cli download {model}), or unset HF_HUB_OFFLINE",
            )
        ]
    if place.kind == "absent":
        return [
            _finding(
                "model-download",
                "note",
                f"the {role} {model} is not on this machine: vLLM fetches it before it loads",
                f"huggingface-cli download {model} fetches it beforehand",
            )
        ]
    return []


def _nearby(model: str) -> str:
    """The directories whose names look like the one that is not there."""
    from difflib import get_close_matches

    path = Path(model).expanduser()
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_dir()]
    except OSError:
        return "write a directory that has config.json, or ORG/NAME"
    close = get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / close[0]}?" if close else "write a directory that has config.json, or ORG/NAME"


def _config(place: ModelPlace, model: str) -> list[Finding]:
    folder = place.folder or Path()
    if place.file.endswith(".gguf") or (folder / "params.json").is_file():
        return []
    config = folder / "config.json"
    if not config.is_file():
        text, remedy = f"{folder} holds no config.json", "name the directory that has it"
        return [_finding("model-missing", "error" if place.kind == "directory" else "note", text, remedy)]
    try:
        is_object = isinstance(json.loads(config.read_bytes()), dict)
    except (OSError, ValueError, RecursionError):
        is_object = False
    return [] if is_object else [_finding("model-missing", "error", f"{config} is no JSON object", f"{_AGAIN} {model}")]


def _weights(place: ModelPlace, model: str, host: Host) -> list[Finding]:
    problems = weight_problems(place.folder or Path())
    if place.kind == "cache" and not host.is_offline:  # vLLM fetches what is missing
        problems = [problem for problem in problems if problem.kind == "corrupt"]
    remedy = f"{_AGAIN} {model}" if place.kind == "cache" else f"copy or download {place.folder} again"
    found = []
    for kind, code in (("missing", "weights-missing"), ("corrupt", "weights-corrupt")):
        those = [problem for problem in problems if problem.kind == kind]
        if those:
            found.append(_finding(code, "error", _told(those, place.folder or Path()), remedy))
    return found


def _told(problems: list[FileProblem], folder: Path) -> str:
    shown = "; ".join(f"{p.file} {p.text}".strip() for p in problems[:_SHOWN])
    more = len(problems) - _SHOWN
    return f"{folder}: {shown}" + (f"; and {more} more" if more > 0 else "")


def _tokenizer(place: ModelPlace, words: Sequence[str]) -> list[Finding]:
    folder = place.folder or Path()
    if place.kind == "cache" or place.file or option_value(words, "--tokenizer") is not None:
        return []
    if any((folder / name).is_file() for name in _TOKENIZERS):
        return []
    return [
        _finding(
            "tokenizer-missing",
            "warning",
            f"{folder} holds no tokenizer",
            "copy it beside the weights, or name one with --tokenizer",
        )
    ]


def _draft(words: Sequence[str], host: Host, cwd: Path | None) -> list[Finding]:
    """The model of speculative decoding, which vLLM looks for only after the first one is set up."""
    stated = option_value(words, "--speculative-config", "-sc")
    try:
        config = json.loads(stated) if stated is not None else {}
    except ValueError:
        return []  # the engine's parser is asked about that
    name = config.get("model") if isinstance(config, dict) else None
    if not isinstance(name, str) or config.get("method") in _WITHOUT_DRAFT:
        return []
    place = find_model(name, host.env, config.get("revision"), cwd)
    found = _place(name, place, host, "draft model")
    if place.folder is not None and not found:
        found = _config(place, name) + _weights(place, name, host)
    return found


def _finding(code: str, severity: Severity, message: str, remedy: str) -> Finding:
    return Finding(code=code, severity=severity, message=message, remedy=remedy, source="the model's files")
