"""Write profiles/models from a directory of config.json copies.

  python tools/build_catalogue.py CONFIGS_DIR [OUT_DIR]

CONFIGS_DIR holds ORG__NAME/config.json (and hf_quant_config.json), weights.json (sizes by id) and PROVENANCE.md
(one line a model: id, completeness, where it was found). Notes are in catalogue_notes.yaml beside this file, the keys
that are left out in profiles/models/_keys.yaml.
"""

from __future__ import annotations

import json
import re
import sys
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kvadvise.catalogue_entry import Completeness, Entry, EntryWeights, entry_text, key_patterns, matcher, reduce_config

_GIB = 1024**3
_MODELS = Path(__file__).parent.parent / "profiles" / "models"
_LINE = re.compile(r"- `(?P<id>[^`]+)` — (?P<rest>.+)")
_MAY_DIFFER = ("hidden_act", "hidden_activation", "hybrid_override_pattern")


def main(arguments: list[str]) -> None:
    """Read the directory and write one file a model; what was there before stays unless it is written anew."""
    configs = Path(arguments[0])
    out = Path(arguments[1]) if len(arguments) > 1 else _MODELS
    entries = read_entries(configs)
    for entry in with_bases(entries):
        path = out / f"{entry.id}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(entry_text(entry), encoding="utf-8")
    sys.stdout.write(f"{len(entries)} entries\n")


def read_entries(configs: Path) -> dict[str, Entry]:
    """An entry for every directory that holds a config.json, without anything taken from another model."""
    weights = json.loads((configs / "weights.json").read_text(encoding="utf-8"))
    origins = read_origins(configs / "PROVENANCE.md")
    notes = yaml.safe_load((Path(__file__).parent / "catalogue_notes.yaml").read_text(encoding="utf-8"))
    dropped = key_patterns("dropped")
    entries: dict[str, Entry] = {}
    for file in sorted(configs.glob("*__*/config.json")):
        model_id = file.parent.name.replace("__", "/", 1)
        config = json.loads(file.read_text(encoding="utf-8"))
        quant_file = file.parent / "hf_quant_config.json"
        quant = json.loads(quant_file.read_text(encoding="utf-8")) if quant_file.exists() else None
        completeness, source = origins[model_id]
        known: dict[str, Any] = next(
            (weights[name] for name in (model_id, *other_names(model_id)) if name in weights), {}
        )
        entries[model_id] = Entry(
            id=model_id,
            source=source,
            completeness=completeness,
            note=notes.get(model_id, ""),
            weights=weight_figures(known, is_quantised="quantization_config" in config or bool(quant)),
            config=reduce_config(config, dropped),
            quant_config=None if quant is None else reduce_config(quant, dropped),
        )
    return entries


def other_names(model_id: str) -> list[str]:
    """The other names of a renamed repository."""
    aliases: dict[str, str] = yaml.safe_load((_MODELS / "_aliases.yaml").read_text(encoding="utf-8"))
    return [other for other, name in aliases.items() if name == model_id]


def read_origins(file: Path) -> dict[str, tuple[Completeness, str]]:
    """How complete each config is and where it was found, in short words."""
    found: dict[str, tuple[Completeness, str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        match = _LINE.match(line)
        if match:
            completeness, source = match["rest"].split(" — ")[:2]
            found[match["id"]] = (completeness_of(completeness), short_source(source))
    return found


def completeness_of(text: str) -> Completeness:
    """One of three words for the many that are used."""
    if text.startswith("partial"):
        return "partial"
    return "near-complete" if text.startswith(("near-complete", "complete-looking")) else "complete"


def short_source(text: str) -> str:
    """Where a config was found: the package or repository, without the path inside it or how it was searched."""
    while (plain := re.sub(r"\([^()]*\)", "", text)) != text:
        text = plain
    places: list[str] = []
    for part in text.split(" + "):
        place = _place(part)
        if place not in places:
            places.append(place)
    return " and ".join(places)


def _place(text: str) -> str:
    package = re.search(r"aiconfigurator-core ([\d.]+)", text)
    if package:
        return f"copy in the aiconfigurator-core {package[1]} package"
    scrape = re.search(r"llmfit ([\d.]+)", text)
    if scrape and not text.startswith(("github", "transformers")):
        return f"fields scraped by llmfit {scrape[1]}"
    repository = re.search(r"([\w.-]+/[\w.-]+) +@([0-9a-f]{12})", text)
    if repository:
        return f"copy in github {repository[1]}@{repository[2]}"
    for pattern, words in (
        (r"transformers ([\d.]+) (\w+) defaults", r"class defaults of transformers \1 \2"),
        (r"^transformers", "class defaults of transformers"),
        (r"maxtext", "copy in github AI-Hypercomputer/maxtext"),
        (r"huggingface/trl PR #(\d+)", r"reference config in huggingface/trl pull request \1"),
        (r"KAITO", "KAITO's model catalogue"),
        (r"vLLM.*groundtruth", "vLLM's table of base model architectures"),
        (r"survey", "a published survey of configs"),
        (r"test file|const ", "a fixture in a public test suite"),
        (r"indexed doc", "fields quoted in a public document"),
    ):
        match = re.search(pattern, text)
        if match:
            return match.expand(words)
    raise SystemExit(f"no short words for this source: {text}")


def weight_figures(known: dict[str, Any], *, is_quantised: bool) -> EntryWeights:
    """The checkpoint's size as far as the figures carry; nothing is multiplied that may hold packed weights."""
    total, count, dtype = known.get("total_size_bytes"), known.get("num_parameters"), known.get("dtype")
    is_quantised = is_quantised or "quant_method" in known or "quantized repo" in known.get("note", "")
    packs_elements = is_quantised and known.get("quant_method") not in ("fp8", "awq", "gptq")
    source = ""
    if total:
        source = "total_size of its index file"
    elif known.get("model_card_GiB"):  # its repository holds the weights twice
        total = round(known["repo_weight_files_GiB"] / 2 * _GIB)
        source = "half of its repository's weight files (there twice), as listed to 0.01 GiB"
    elif count and not is_quantised and (dtype != "float32" or known_as_16_bit(known)):
        total = 2 * count
        source = "number of parameters x 2 bytes" + ("" if dtype == "bfloat16" else " (16 bits, as vLLM loads it)")
    elif known.get("repo_weight_files_GiB"):
        total = round(known["repo_weight_files_GiB"] * _GIB)
        source = "its repository's weight files, as listed to 0.01 GiB"
    elif known.get("repo_GB_approx"):
        total = round(known["repo_GB_approx"] * 1e9)
        source = "its repository's size, as listed to 0.01 GB"
    return EntryWeights(total_bytes=total, num_parameters=None if packs_elements else count, dtype=dtype, source=source)


def known_as_16_bit(known: dict[str, Any]) -> bool:
    """Whether a float32 in the copy is known to be the copy's own: Qwen2.5-0.5B-Instruct was saved anew."""
    return bool(known.get("num_parameters") == 494032768)


def with_bases(entries: dict[str, Entry]) -> list[Entry]:
    """Partial entries with the keys that a whole one of equal sizes and equal number of parameters fixes."""
    not_from_base = matcher(key_patterns("not_from_base"))
    whole = [e for e in entries.values() if e.completeness != "partial" and "quantization_config" not in e.config]
    return [
        _with_base(entry, whole, not_from_base) if entry.completeness == "partial" else entry
        for entry in entries.values()
    ]


def _with_base(entry: Entry, whole: list[Entry], not_from_base: Any) -> Entry:
    bases = [base for base in whole if is_base(base, entry)]
    if not bases:
        return entry
    base = max(bases, key=lambda b: (_likeness(b.id, entry.id), b.completeness == "complete"))
    extra = missing_keys(entry.config, base.config, not_from_base)
    return msgspec.structs.replace(entry, base_model=base.id, base_config=extra) if extra else entry


def is_base(base: Entry, entry: Entry) -> bool:
    """Same model type, same parameters to the unit, and no number that differs where both give one."""
    if not entry.weights.num_parameters or base.weights.num_parameters != entry.weights.num_parameters:
        return False
    ours, theirs = _flat(entry.config), _flat(base.config)
    if ours.get("model_type") != theirs.get("model_type"):
        return False
    free = matcher([*key_patterns("not_from_base"), *_MAY_DIFFER])
    shared = [k for k in ours if k in theirs and (k == "model_type" or not free(k))]
    numbers = [k for k in shared if type(ours[k]) is int]
    return len(numbers) >= 4 and all(ours[k] == theirs[k] for k in shared)


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    plain = {k: v for k, v in config.items() if not isinstance(v, dict)}
    nested = config.get("text_config")
    return {**plain, **nested} if isinstance(nested, dict) else plain


def missing_keys(own: dict[str, Any], base: dict[str, Any], not_from_base: Any) -> dict[str, Any]:
    """What `base` says and `own` does not, level by level of the text config."""
    if ("text_config" in own) != ("text_config" in base):
        return {}
    extra = {k: v for k, v in base.items() if k not in own and not not_from_base(k)}
    if "text_config" in own:
        nested = missing_keys(own["text_config"], base["text_config"], not_from_base)
        extra |= {"text_config": nested} if nested else {}
    return extra


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


if __name__ == "__main__":
    main(sys.argv[1:])
