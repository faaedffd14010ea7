"""The model: not there, not allowed, not whole, not known to this vLLM."""

from __future__ import annotations

import re
from collections.abc import Callable

from advisor.model.since import ARCHITECTURE_RELEASES
from launch.diagnosis_types import Advice, Rule, Seen, fixed

_OFFLINE = re.compile(r"outgoing traffic has been disabled|OfflineModeIsEnabled|offline mode is enabled")
_QUOTED = re.compile(r"'([^']{2,200})'(?!.*'[^']{2,200}')")


def _unknown_architecture(seen: Seen) -> Advice:
    names = re.findall(r"[\w.]+", seen.match[1])
    name, version = names[0] if names else "?", seen.case.version
    known = ARCHITECTURE_RELEASES.get(name)
    if known is not None and version is not None:
        first, gone = known
        if first is not None and version < first:
            return Advice(
                code="architecture-too-new",
                message=f"vLLM {version} does not know {name} yet; it came with {'.'.join(map(str, first))}",
                remedy=f"use vLLM {'.'.join(map(str, first))} or newer",
                signals=("the error's architecture", "architectures by release"),
            )
        if gone is not None and version >= gone:
            return Advice(
                code="architecture-removed",
                message=f"vLLM {version} no longer has {name}; it went by {'.'.join(map(str, gone))}",
                remedy="use an older vLLM, or another model",
                signals=("the error's architecture", "architectures by release"),
            )
    return Advice(
        message=f"this vLLM does not know the architecture {name}",
        remedy="use a newer vLLM, or a model that it supports",
        signals=("the error's architecture",),
        not_seen=() if version else ("the release",),
    )


def _unknown_type(seen: Seen) -> Advice:
    return Advice(
        message=f"the installed transformers does not know the model type {seen.match[1]}",
        remedy="use the transformers that this model's card names, or a newer vLLM image",
    )


def _missing(seen: Seen) -> Advice:
    name = seen.case.flag("model") or next((group for group in seen.match.groups() if group), None)
    quoted = _QUOTED.search(seen.line.text)
    said = name or (quoted[1] if quoted else None)
    return Advice(
        message=f"there is no model {said}" if said else "there is no such model",
        remedy="check the name, or the directory (it needs config.json); a private one also needs HF_TOKEN",
        signals=("the loader's error",),
    )


def _unreachable(seen: Seen) -> Advice:
    environment = seen.case.context.environment
    offline = any(environment.get(k, "").lower() in ("1", "true", "on", "yes") for k in ("HF_HUB_OFFLINE",)) or (
        _OFFLINE.search(seen.line.text) is not None
    )
    if offline:
        return Advice(
            code="hub-offline",
            message="the model is not in the local cache, and the hub is switched off",
            remedy="download it first (unset HF_HUB_OFFLINE once), or give the model's directory",
            signals=("offline mode",),
        )
    return Advice(
        code="hub-unreachable",
        message="the hub cannot be reached, and the model is not in the local cache",
        remedy="check network, proxy and HF_ENDPOINT, or give the model's directory and set HF_HUB_OFFLINE=1",
        retry=True,
        confidence="medium",
        signals=("the hub client's error",),
    )


def _not_inspected(seen: Seen) -> Advice:
    """The text blames the architecture; with a MIG UUID it is the device that could not be read (vllm#41848)."""
    visible = seen.case.context.environment.get("CUDA_VISIBLE_DEVICES", "")
    if visible.startswith("MIG-"):
        return Advice(
            code="mig-slice",
            message=f"this release cannot read the slice's name {visible} in CUDA_VISIBLE_DEVICES, and blames the "
            "architecture for it",
            remedy="select the slice through the container runtime, or by index: CUDA_VISIBLE_DEVICES=0",
            environment={"CUDA_VISIBLE_DEVICES": "0"},
            confidence="medium",
            signals=("vLLM's error", "CUDA_VISIBLE_DEVICES"),
        )
    return Advice(
        message=f"vLLM could not import its own code for {seen.match[1]}: the reason stands above this line",
        remedy="read the error above it; often a broken install, a missing package, or a device that cannot be queried",
        confidence="low",
    )


def _corrupt(message: str) -> Callable[[Seen], Advice]:
    def explain(seen: Seen) -> Advice:
        return Advice(
            message=message.format(seen.match[1] if seen.match.groups() else ""),
            remedy="compare the files' sizes with the hub's and download the broken one again",
            signals=("the reader's error",),
        )

    return explain


RULES: tuple[Rule, ...] = (
    Rule(
        codes=("architecture-unknown", "architecture-too-new", "architecture-removed"),
        hint="are not supported for now",
        pattern=re.compile(r"Model architectures (\[[^\]]{0,300}\]) are not supported for now"),
        explain=_unknown_architecture,
        source="vLLM model_executor/models/registry.py",
        rank=8,
    ),
    Rule(
        codes=("architecture-unknown",),
        hint="does not recognize this architecture",
        pattern=re.compile(r"has model type [`'\"]([\w.-]+)[`'\"] but Transformers does not recognize"),
        explain=_unknown_type,
        source="transformers AutoConfig",
        rank=8,
    ),
    Rule(
        codes=("architecture-inspection", "mig-slice"),
        hint="failed to be inspected",
        pattern=re.compile(r"Model architectures (\[[^\]]{0,300}\]) failed to be inspected"),
        explain=_not_inspected,
        source="vLLM model_executor/models/registry.py; vllm#41848",
        rank=40,
    ),
    Rule(
        codes=("model-gated",),
        hint=("gated", "is restricted"),
        pattern=re.compile(
            r"GatedRepoError|Cannot access gated repo|Access to model (\S+) is restricted"
            r"|You are trying to access a gated repo"
        ),
        explain=fixed(
            "the model is gated, and no token with access was given",
            "accept its terms on the hub and pass HF_TOKEN to the process (containers need it passed on)",
        ),
        source="huggingface_hub; vllm#9255",
        hides=("model-missing", "hub-unreachable"),
        rank=6,
    ),
    Rule(
        codes=("model-missing",),
        hint=(
            "repositorynotfound",
            "repo id must be",
            "valid model identifier",
            "invalid repository id",
            "revisionnotfound",
            "config.json",
            "unrecognized model",
            "can't load the configuration",
        ),
        pattern=re.compile(
            r"RepositoryNotFoundError|Repo id must be in the form|is not a local folder and is not a valid model ident"
            r"|Invalid repository ID or local directory specified: '?([^'\s]+)|RevisionNotFoundError"
            r"|FileNotFoundError.*config\.json|(?:Unrecognized model in|Can't load the configuration of) '?([^'\s]+)"
            r"|does not appear to have a file named config\.json"
        ),
        explain=_missing,
        source="huggingface_hub; vLLM transformers_utils/repo_utils.py",
        rank=7,
    ),
    Rule(
        codes=("hub-offline", "hub-unreachable"),
        hint=(
            "localentrynotfound",
            "offlinemode",
            "outgoing traffic",
            "offline mode",
            "couldn't connect to",
            "max retries",
            "nameresolution",
            "trying to locate",
        ),
        pattern=re.compile(
            r"LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled|offline mode is enabled"
            r"|couldn't connect to '?https://|(?:Max retries exceeded|NameResolutionError).*huggingface"
            r"|An error happened while trying to locate the file"
        ),
        explain=_unreachable,
        source="huggingface_hub; vllm#23684, vllm#8458",
        rank=9,
    ),
    Rule(
        codes=("weights-missing",),
        hint="cannot find any",
        pattern=re.compile(r"Cannot find any (?:\w+ )?model weights with `([^`]*)`"),
        explain=fixed(
            "there are no weight files in {1}", "download them (a config alone is not enough), or check load_format"
        ),
        source="vLLM model_executor/model_loader/default_loader.py",
        rank=8,
    ),
    Rule(
        codes=("weights-corrupt",),
        hint="deserializing header",
        pattern=re.compile(r"Error while deserializing header: ?([\w ,:]{0,80})"),
        explain=_corrupt("a weight file is cut short or broken ({0})"),
        source="safetensors",
        rank=8,
    ),
    Rule(
        codes=("weights-corrupt",),
        hint=("pytorchstreamreader", "invalid load key", "unpicklingerror", "central directory", "consistency check"),
        pattern=re.compile(
            r"PytorchStreamReader failed|invalid load key|UnpicklingError|(?:failed finding central directory)"
            r"|Consistency check failed"
        ),
        explain=_corrupt("a weight file is cut short or broken"),
        source="torch, huggingface_hub",
        rank=8,
    ),
    Rule(
        codes=("weights-mismatch",),
        hint=("no module or parameter named", "not initialized from checkpoint", "keyerror: ", "size mismatch for"),
        pattern=re.compile(
            r"There is no module or parameter named '?([\w.]+)"
            r"|Following weights were not initialized from checkpoint: (.{0,120})"
            r"|KeyError: '((?:model|layers|transformer|language_model|lm_head)\.[\w.]+)'"
            r"|size mismatch for ([\w.]+)"
        ),
        explain=fixed(
            "the checkpoint's tensors are not the ones that its config promises: {0}",
            "use the files of one revision; a quantised checkpoint needs its own config.json, and often a newer vLLM",
            confidence="medium",
        ),
        source="vLLM model_executor/models/utils.py: AutoWeightsLoader",
        rank=25,
    ),
    Rule(
        codes=("remote-code",),
        hint="trust_remote_code",
        pattern=re.compile(
            r"(?:requires you to execute|contains custom code which must be executed|Please pass the argument)"
            r" ?.{0,200}?`?trust_remote_code=True"
        ),
        explain=fixed(
            "the model brings its own code, which is not run unless you say so",
            "read that code, then decide on trust_remote_code yourself",
        ),
        source="transformers dynamic_module_utils",
        rank=8,
    ),
    Rule(
        codes=("tokenizer-missing",),
        hint="tokenizer",
        pattern=re.compile(r"Can't load (?:the )?tokenizer for '?([^'\s]{1,200})"),
        explain=fixed(
            "there is no tokenizer for {1}", "give one with tokenizer; a GGUF file needs the original model's"
        ),
        source="transformers; vllm#35987",
        rank=12,
    ),
    Rule(
        codes=("quantization-mismatch",),
        hint="quantization method specified in the model config",
        pattern=re.compile(
            r"Quantization method specified in the model config \((\w[\w-]*)\) does not match the quantization method "
            r"specified in the `quantization` argument \((\w[\w-]*)\)"
        ),
        explain=fixed(
            "the checkpoint is quantised with {1}, and the argument says {2}",
            "leave quantization out: vLLM reads it from the checkpoint",
            change={"quantization": None},
        ),
        source="vLLM config/model.py: _verify_quantization",
        rank=6,
    ),
)
