"""Rules of length: what the model was made for, what the server refuses, what the percentiles leave open."""

from __future__ import annotations

import re

from advisor.reasons import longer_share
from advisor.rules.table import Hit, InputRule, Planned, PlanRule
from advisor.sizing import AUTO_LENGTH, Problem

_REASONS = re.compile(
    r"(?:^|[-_])(?:r1|qwq|qwen3(?:\.\d)?|gpt|magistral|thinking|reasoning|smollm3|glm|minimax|seed|ernie)(?:$|[-_.])"
)
_ANSWERS_AT_ONCE = re.compile(r"instruct|base|coder|embedding|reranker|guard|gpt-(?!oss)|glm-(?:4-|ocr)|minimax-text")
_AUTO_SINCE = (0, 14)
_TEMPLATE_TOKENS = 64
_USABLE_SHARE = 0.5
_SHORT_IN_BLOCKS = 4


def _load_beyond_model(problem: Problem) -> Hit | None:
    needed, longest = problem.longest_tokens, problem.model.max_length
    if needed <= longest.tokens:
        return None
    load = problem.workload.workload
    return Hit(
        f"the load's longest request is {load.prompt_tokens.longest + load.chat_template_tokens} + "
        f"{load.output_tokens.longest} = {needed} tokens; the model was made for {longest.tokens} ({longest.key})",
        "choose a model with a longer context, or decide on rope scaling yourself: engine.hf_overrides (YaRN), which "
        "changes answers to short prompts too",
    )


def _pinned(problem: Problem) -> int | None:
    value = problem.pins.get("max_model_len")
    return value if isinstance(value, int) and value > 0 else None


def _p95_beyond_pin(problem: Problem) -> Hit | None:
    pinned, needed = _pinned(problem), problem.prompt_tokens + problem.output_tokens
    if pinned is None or needed <= pinned:
        return None
    return Hit(
        f"a p95 request is {problem.prompt_tokens} + {problem.output_tokens} = {needed} tokens, {needed - pinned} more "
        f"than the pinned max_model_len {pinned}",
        _too_long(problem) + f"; pin at least {problem.longest_tokens}",
    )


def _too_long(problem: Problem) -> str:
    if problem.version <= (0, 19, 99):
        return "vLLM up to 0.19 answers such a request with 400"
    return "vLLM answers a longer prompt with 400 and cuts a longer output short (finish_reason length)"


def _longest_beyond_pin(problem: Problem) -> Hit | None:
    pinned, needed = _pinned(problem), problem.longest_tokens
    if pinned is None or needed <= pinned or problem.prompt_tokens + problem.output_tokens > pinned:
        return None
    load = problem.workload.workload
    return Hit(
        f"the longest prompt with the longest output is {load.prompt_tokens.longest + load.chat_template_tokens} + "
        f"{load.output_tokens.longest} = {needed} tokens, {needed - pinned} more than the pinned max_model_len "
        f"{pinned}",
        _too_long(problem) + f"; pin {needed} to serve every request",
    )


def _percentiles_only(problem: Problem) -> Hit | None:
    load = problem.workload.workload
    text = longer_share(load.prompt_tokens, load.output_tokens)
    if not text:
        return None
    return Hit(
        text,
        "give prompt_tokens.max and output_tokens.max (the client's max_tokens); the headroom of "
        f"{problem.workload.policy.headroom:g} is kept for longer requests in the pool, it does not lift the limit",
    )


def _auto(problem: Problem) -> Hit | None:
    if problem.pins.get("max_model_len") not in AUTO_LENGTH or problem.version >= _AUTO_SINCE:
        return None
    return Hit(
        f"vLLM {problem.version} cannot choose max_model_len itself; auto and -1 came with 0.14",
        f"pin {problem.longest_tokens}, or leave it to the plan",
    )


def _template_margin(problem: Problem) -> Hit | None:
    pinned, load = _pinned(problem), problem.workload.workload
    if pinned is None or load.chat_template_tokens or load.prompt_tokens.max is None:
        return None
    left = pinned - problem.longest_tokens
    if not 0 <= left < _TEMPLATE_TOKENS:
        return None
    return Hit(
        f"the longest request leaves {left} of the pinned max_model_len: if prompts were counted without the chat "
        "template, the longest will not fit",
        "count prompts with /tokenize, or give workload.chat_template_tokens (64, and more with tools)",
    )


def _reasoning(problem: Problem) -> Hit | None:
    output = problem.workload.workload.output_tokens
    if output.max is not None or not may_reason(problem.model.id):
        return None
    return Hit(
        f"{problem.model.id} may reason before it answers: outputs run to their limit, and the p95 of "
        f"{output.at_p95} tokens covers only what was measured with reasoning on",
        "give output_tokens.max (the client's max_tokens), measured with reasoning",
    )


def may_reason(model_id: str) -> bool:
    """Whether a model of this name thinks aloud before it answers, as far as names tell."""
    name = model_id.rsplit("/", 1)[-1].lower()
    return "thinking" in name or (bool(_REASONS.search(name)) and not _ANSWERS_AT_ONCE.search(name))


def _block_waste(planned: Planned) -> Hit | None:
    problem = planned.problem
    tokens = problem.prompt_tokens + problem.output_tokens
    block = max((g.block_size for g in planned.sized.layout.groups if g.kind != "MambaSpec"), default=0)
    if block * _USABLE_SHARE <= tokens or block <= _SHORT_IN_BLOCKS * 16:
        return None
    why = "aligned to the model's recurrent state" if planned.sized.layout.has_states else "block_size is pinned"
    return Hit(
        f"blocks of {block} tokens ({why}) hold one request of {tokens} tokens each: "
        f"{100 * tokens / block:.0f} % of a block is used",
        "short requests waste such a cache; judge by requests, not by tokens"
        if planned.sized.layout.has_states
        else "leave block_size out: vLLM's own is small",
    )


INPUTS = (
    InputRule(
        code="load-beyond-model",
        severity="error",
        check=_load_beyond_model,
        consequence="invalid",
        source="vLLM config/model.py: _get_and_verify_max_len; vllm#3676",
    ),
    InputRule(
        code="p95-beyond-max-model-len",
        severity="error",
        check=_p95_beyond_pin,
        consequence="does_not_fit",
        source="vLLM entrypoints/openai; vllm#20409",
    ),
    InputRule(
        code="longest-beyond-max-model-len",
        severity="warning",
        check=_longest_beyond_pin,
        source="vLLM entrypoints/openai; vllm#20409",
    ),
    InputRule(
        code="max-model-len-auto",
        severity="error",
        check=_auto,
        consequence="invalid",
        source="vLLM engine/arg_utils.py: human_readable_int_or_auto; vllm#29431",
    ),
    InputRule(code="lengths-percentile-only", severity="warning", check=_percentiles_only, source="workload"),
    InputRule(code="template-margin", severity="note", check=_template_margin, source="vllm#40775"),
    InputRule(code="reasoning-output", severity="warning", check=_reasoning, source="chat-ui#2383"),
)
PLANS = (PlanRule(code="block-waste", severity="warning", check=_block_waste, source="vllm#54458"),)
