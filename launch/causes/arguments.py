"""Arguments that this vLLM does not take, or not with these values, whatever the memory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from advisor.arguments import check_pins
from advisor.versions import DEFAULT
from launch.diagnosis_types import Advice, Rule, Seen, fixed
from launch.progress import Phase

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # what max_lora_rank may be (config/lora.py)


def _unknown(seen: Seen) -> Sequence[Advice]:
    """Every argument that the parser left over, each with what replaced it."""
    names = dict.fromkeys(_flags(seen.match[1]))
    if not names:
        return [_left_over(seen.match[1])]
    return [_unknown_flag(name, seen) for name in names]


def _flags(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    flags = [word.split("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    return [flag.lstrip("-").replace("-", "_").removeprefix("no_").split(".")[0] for flag in flags]


def _left_over(text: str) -> Advice:
    return Advice(
        code="unknown-argument",
        message=f"vLLM does not know what to do with {text.strip()[:80]!r}",
        remedy="quote values that hold spaces, and give one model only",
    )


def _unknown_flag(name: str, seen: Seen) -> Advice:
    version = seen.case.version
    found = check_pins({name: None}, version or DEFAULT)
    flag = "--" + name.replace("_", "-")
    if found:
        return Advice(
            code=found[0].code,
            message=found[0].message if version else f"this vLLM has no argument {flag}",
            remedy=f"leave {flag} out: {found[0].hint.removesuffix('; leave it out')}",
            change={name: None},
            signals=("the parser's message", f"the arguments of vLLM {version or DEFAULT}"),
        )
    return Advice(
        code="unknown-argument",
        message=f"this vLLM's parser has no {flag}",
        remedy=f"leave {flag} out",
        change={name: None},
        confidence="medium",
        signals=("the parser's message",),
        not_seen=() if version else ("the release",),
    )


def _wrong_value(seen: Seen) -> Advice:
    name = seen.match["flag"].split("/")[-1].lstrip("-").replace("-", "_")
    why = seen.match["why"].split(" (choose from")[0]
    return Advice(
        code="kv-dtype-unknown" if name == "kv_cache_dtype" else "argument-value",
        message=f"{name} {seen.match['value']!r} is not possible: {_short(why)}",
        remedy="use one of the values that the message lists" if "choose from" in seen.match["why"] else "correct it",
        change={name: "auto"} if name == "kv_cache_dtype" else None,
        signals=("the parser's message",),
    )


def _short(text: str) -> str:
    return text if len(text) <= 160 else text[:157] + "..."


def _beyond_model(seen: Seen) -> Advice:
    asked, derived = int(seen.match["asked"]), int(float(seen.match["derived"]))
    return Advice(
        message=f"max_model_len {asked} is more than the model was made for: {derived} ({seen.match['key']})",
        remedy=f"set max_model_len to {derived}; a longer one needs rope scaling (hf_overrides), which is your "
        "decision and changes answers",
        change={"max_model_len": derived} if derived >= 1 else None,
        signals=("both lengths of the error",),
    )


def _batched_below_seqs(seen: Seen) -> Advice:
    batched, seqs = int(seen.match[1]), int(seen.match[2])
    return Advice(
        message=f"max_num_batched_tokens {batched} is less than max_num_seqs {seqs}: a step needs a token of each",
        remedy=f"set max_num_seqs to {batched}, or max_num_batched_tokens to {seqs} or more",
        change={"max_num_seqs": batched} if batched >= 1 else None,
    )


def _batched_below_length(seen: Seen) -> Advice:
    batched, length = int(seen.match[1]), int(seen.match[2])
    return Advice(
        message=f"without chunked prefill max_num_batched_tokens {batched} must hold max_model_len {length}",
        remedy=f"set enable_chunked_prefill, or max_num_batched_tokens to {length}",
        change={"enable_chunked_prefill": True},
    )


def _block_size(seen: Seen) -> Advice:
    return Advice(
        message=f"no attention backend here takes block_size {seen.match[1]}{_backends(seen.match[2])}",
        remedy="leave block_size out: the backend's own is used (128 on the CPU, a multiple of 32)",
        change={"block_size": None},
        signals=("the backends' sizes in the error",) if seen.match[2] else (),
    )


def _backends(text: str | None) -> str:
    return f": {text}" if text else ""


def _lora_rank(seen: Seen) -> Advice:
    rank, most = int(seen.match[1]), int(seen.match[2])
    fits = next((r for r in _RANKS if r >= rank), None)
    return Advice(
        severity="warning" if seen.phase is Phase.READY else "error",
        message=f"the adapter's rank {rank} is above max_lora_rank {most}",
        remedy=f"set max_lora_rank to {fits}: it sizes the buffers of all adapters" if fits else "retrain it smaller",
        change={"max_lora_rank": fits} if fits else None,
    )


def _too_long(seen: Seen) -> Advice:
    """A 400 of one request, not a fault of the server; the length that would take it, where it is printed."""
    limit, asked = int(seen.match["limit"]), seen.match["asked"]
    model = seen.case.context.model_max_len
    wanted = None if asked is None else -(-int(asked) // 16) * 16
    can = wanted is not None and (model is None or wanted <= model) and wanted > limit
    return Advice(
        message=f"a request asked for {asked or 'more'} tokens of a server with max_model_len {limit}: it was refused "
        "with 400",
        remedy=f"plan for max_model_len {wanted} or shorten prompt plus max_tokens; the server is not at fault"
        if can
        else "shorten prompt plus max_tokens; the server is not at fault",
        change={"max_model_len": wanted} if can and model is not None else None,
        confidence="high",
        signals=("the refusal's numbers",),
        not_seen=() if model is not None else ("the longest the model allows",),
    )


def _speculation(seen: Seen) -> Advice:
    change: dict[str, Any] = {"max_num_batched_tokens": None}
    return Advice(
        message=f"max_num_batched_tokens {seen.match[1]} leaves no token to schedule beside the drafted ones",
        remedy="leave max_num_batched_tokens out, or raise it above max_num_seqs x drafted tokens",
        change=change,
    )


RULES: tuple[Rule, ...] = (
    Rule(
        codes=("unknown-argument", "argument-removed", "argument-too-new"),
        hint="unrecognized arguments",
        pattern=re.compile(r"unrecognized arguments?: (.+)$"),
        explain=_unknown,
        source="argparse; advisor/argument_table.py; unsloth-zoo#1210, kserve#6037",
        rank=5,
    ),
    Rule(
        codes=("argument-value", "kv-dtype-unknown"),
        hint="error: argument",
        pattern=re.compile(
            r"error: argument (?P<flag>-[\w/. -]*?): "
            r"(?P<why>(?:invalid choice: |invalid \S{1,60} value: |Value |Invalid )'?(?P<value>[^'\s]{0,120}).*)$"
        ),
        explain=_wrong_value,
        source="argparse",
        rank=5,
    ),
    Rule(
        codes=("argument-incomplete",),
        hint=("error: argument", "error: ambiguous option"),
        pattern=re.compile(
            r"error: argument (\S+): expected (?:one|at least one) argument|error: (ambiguous option: .*)"
        ),
        explain=fixed("the command line is incomplete: {0}", "give the value, or write the argument's whole name"),
        source="argparse",
        rank=5,
    ),
    Rule(
        codes=("max-model-len-beyond-model",),
        hint="greater than the derived max_model_len",
        pattern=re.compile(
            r"User-specified max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len "
            r"\((?P<key>\w+)=(?P<derived>\d+(?:\.\d+)?)"
        ),
        explain=_beyond_model,
        source="vLLM config/model.py: get_and_verify_max_len; vllm#3676",
        rank=5,
    ),
    Rule(
        codes=("batched-tokens-below-seqs",),
        hint="max_num_batched_tokens (",
        pattern=re.compile(r"max_num_batched_tokens \((\d+)\) must be greater than or equal to max_num_seqs \((\d+)\)"),
        explain=_batched_below_seqs,
        source="vLLM config/scheduler.py",
        rank=5,
    ),
    Rule(
        codes=("batched-tokens-below-length",),
        hint="max_num_batched_tokens (",
        pattern=re.compile(
            r"max_num_batched_tokens \((\d+)\) is smaller than max_model_len \((\d+)\)\. This effectively"
        ),
        explain=_batched_below_length,
        source="vLLM config/scheduler.py",
        rank=5,
    ),
    Rule(
        codes=("batched-tokens-speculation",),
        hint="max_num_batched_tokens",
        pattern=re.compile(r"does not have enough slots to .*max_num_batched_tokens=(\d+)"),
        explain=_speculation,
        source="vLLM config/vllm.py",
        rank=5,
    ),
    Rule(
        codes=("block-size",),
        hint="no common block size",
        pattern=re.compile(r"No common block size for (\d+)(?: \((.+)\))?\."),
        explain=_block_size,
        source="vLLM v1/worker/utils.py: select_common_block_size",
        rank=5,
    ),
    Rule(
        codes=("lora-rank",),
        hint="max_lora_rank",
        pattern=re.compile(r"LoRA rank (\d+) is greater than max_lora_rank (\d+)"),
        explain=_lora_rank,
        source="vLLM lora/peft_helper.py; vllm#2847",
        rank=30,
    ),
    Rule(
        codes=("request-too-long",),
        hint="maximum context length is",
        pattern=re.compile(
            r"maximum context length is (?P<limit>\d+) tokens\. However, (?:you requested (?P<asked>\d+) tokens|"
            r"your (?:prompt|request))"
        ),
        explain=_too_long,
        source="vLLM entrypoints; vllm#20409, llxprt-code#310",
        severity="note",
        rank=80,
    ),
)
