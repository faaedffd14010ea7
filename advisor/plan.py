"""From a workload, a model and a device to a plan. Pure: the same values in give the same plan out, byte for byte.

The order: the vLLM release, the model, the rules about the inputs, the search over the priority table, the rules about
what was found, the alternatives. What is not understood gets no number at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from advisor import rules
from advisor.alternatives import alternatives, concurrency_of, outcome_of, pin_costs
from advisor.arguments import Violation, check_pins, normalise
from advisor.assumptions import assumptions
from advisor.command import argv_of, flags_of
from advisor.drafting import with_draft_layers
from advisor.errors import EngineRefuses, NotUnderstood
from advisor.facts import ModelFacts
from advisor.gpu import Gpu
from advisor.layout_only import groups_of, layout_only
from advisor.measured import Measurement, find_measurement, key_of
from advisor.model.read import read_model
from advisor.overhead_constants import OverheadTable
from advisor.overrides import with_overrides
from advisor.plan_types import Finding, Kv, Measured, Memory, Outcome, Plan, Subject
from advisor.rules.table import Planned, Verdicts, in_order
from advisor.search import Found, search
from advisor.sizing import Problem, Sized
from advisor.steps import is_lossy, met
from advisor.versions import DEFAULT, NEWEST, OLDEST, Version, parse_version
from advisor.workload import WorkloadFile

_POOLING = {
    "runner": ("pooling",),
    "convert": ("embed", "classify", "reward"),
    "task": ("embed", "embedding", "classify", "reward", "score"),
}
_LEFT_OUT = frozenset({"file", "lines", "plan"})  # where the file lay is no part of the plan


def make_plan(
    workload: WorkloadFile,
    facts: ModelFacts,
    gpu: Gpu,
    constants: OverheadTable,
    *,
    kvadvise_version: str,
    inputs_sha256: str,
    known_gpus: Sequence[Gpu] = (),
    siblings: Sequence[ModelFacts] = (),
    measured: Sequence[Measurement] = (),
) -> Plan:
    """The plan of one workload on one device.

    `known_gpus` and `siblings` (other checkpoints of the same family) are where alternatives are looked for;
    `measured` is what earlier starts cost, used wherever a configuration has one's key. Nothing is raised for what the
    user wrote or what is not known: the outcome and the findings say it.
    """
    version = planned_version(workload)
    blank = Plan(
        kvadvise_version=kvadvise_version,
        inputs_sha256=inputs_sha256,
        outcome="not_understood",
        subject=_subject(facts, gpu, version, None),
        workload=_echo(workload),
    )
    try:
        _check_runner(workload.engine)
        facts = with_overrides(facts, normalise(workload.engine).get("hf_overrides"))
        model = read_model(facts, version)
    except NotUnderstood as unknown:
        return _unknown(blank, unknown)
    problem, violations = _problem(workload, facts, gpu, constants, version, model)
    problem = msgspec.structs.replace(problem, measured=tuple(measured))
    blank = msgspec.structs.replace(blank, subject=_subject(facts, gpu, version, model.architecture))
    try:
        found = search(problem)
    except EngineRefuses as refusal:
        return _refused(blank, problem, violations, refusal)
    except NotUnderstood as unknown:
        return msgspec.structs.replace(_unknown(blank, unknown), kv=layout_only(problem))
    return _planned(blank, problem, found, violations, known_gpus, siblings)


def planned_version(workload: WorkloadFile) -> Version:
    """The vLLM release whose rules apply: the one stated, the newest known for newer ones, else the default."""
    stated = workload.engine.get("vllm_version")
    if stated is None:
        return DEFAULT
    version = parse_version(str(stated))
    if version[:2] > NEWEST[:2]:
        return NEWEST
    return max(version, OLDEST)


def _check_runner(pins: dict[str, Any]) -> None:
    """A pooling server keeps no keys and values from one step to the next. Raises NotUnderstood for one."""
    for name, values in _POOLING.items():
        if pins.get(name) in values:
            raise NotUnderstood(
                f"is {pins[name]!r}: a pooling model has no KV cache to plan, and requests hold nothing between steps",
                where=f"engine.{name}", hint="leave it out for a model that generates",
            )  # fmt: skip


def _is_known(workload: WorkloadFile) -> bool:
    stated = workload.engine.get("vllm_version")
    return stated is None or parse_version(str(stated))[:2] <= NEWEST[:2]


def _problem(
    workload: WorkloadFile, facts: ModelFacts, gpu: Gpu, constants: OverheadTable, version: Version, model: Any
) -> tuple[Problem, tuple[Violation, ...]]:
    """The problem with the pins that can be understood, and what is wrong with the others."""
    pins = {name: value for name, value in workload.engine.items() if name != "vllm_version"}
    asked = workload.model.quantization
    violations = check_pins(pins if asked is None else {"quantization": asked} | pins, version)
    wrong = {v.key for v in violations if v.code in ("argument-value", "kv-dtype-unknown", "quantization-unknown")}
    pins = normalise({name: value for name, value in pins.items() if name not in wrong and value is not None})
    if asked not in (None, model.quantization.method) and not {"quantization"} & (pins.keys() | wrong):
        pins["quantization"] = asked
    problem = Problem(
        workload=workload,
        facts=facts,
        model=with_draft_layers(model, pins),
        gpu=gpu,
        version=version,
        constants=constants.at(version),
        pins=pins,
        is_release_known=_is_known(workload),
    )
    return problem, violations


def _without_loss(problem: Problem) -> Problem:
    policy = msgspec.structs.replace(problem.workload.policy, kv_cache_quantization="never")
    return msgspec.structs.replace(problem, workload=msgspec.structs.replace(problem.workload, policy=policy))


def _planned(
    blank: Plan,
    problem: Problem,
    found: Found,
    violations: tuple[Violation, ...],
    known_gpus: Sequence[Gpu],
    siblings: Sequence[ModelFacts],
) -> Plan:
    sized = found.state.sized
    is_met = met(problem, sized)
    verdicts = rules.ask(problem, Planned(problem=problem, sized=sized, is_met=is_met))
    refused = (*violations, *(v for v in sized.engine.violations if not v.key or v.key in problem.pins))
    outcome = _outcome(problem, sized, verdicts, refused)
    if outcome == "invalid" and is_lossy(sized) and "kv_cache_dtype" not in problem.pins:
        problem = _without_loss(problem)  # what is shown of a refused configuration is the pins' own layout
        return _planned(blank, problem, search(problem), violations, known_gpus, siblings)
    held = concurrency_of(problem, sized)
    ways = () if outcome == "invalid" else alternatives(problem, found, known_gpus, siblings)
    costs = pin_costs(ways, held.promised, is_met=is_met)
    return msgspec.structs.replace(
        blank,
        outcome=outcome,
        flags=flags_of(problem, sized),
        argv=argv_of(problem, sized),
        steps=found.steps,
        memory=memory_of(sized),
        kv=kv_of(problem, sized),
        concurrency=held,
        starts=False if outcome == "invalid" else sized.starts,
        findings=in_order([*map(_violated, refused), *verdicts.findings, *costs]),
        alternatives=ways,
        assumptions=assumptions(problem, sized),
        measured=measured_of(problem, sized),
    )


def _outcome(problem: Problem, sized: Sized, verdicts: Verdicts, refused: Sequence[Violation]) -> Outcome:
    if refused or verdicts.consequence == "invalid":
        return "invalid"
    return "does_not_fit" if verdicts.consequence == "does_not_fit" else outcome_of(problem, sized)


def _refused(blank: Plan, problem: Problem, violations: tuple[Violation, ...], refusal: EngineRefuses) -> Plan:
    """vLLM refuses the pins and no layout is left: every rule that is broken, and no number."""
    verdicts = rules.ask(problem, None)
    findings = [*map(_violated, violations), *verdicts.findings]
    if refusal.code not in {finding.code for finding in findings}:
        findings.append(
            Finding(
                code=refusal.code,
                severity="error",
                message=refusal.what,
                remedy=refusal.hint,
                source=refusal.source,
            )
        )
    return msgspec.structs.replace(blank, outcome="invalid", starts=False, findings=in_order(findings))


def _unknown(blank: Plan, unknown: NotUnderstood) -> Plan:
    finding = Finding(
        code="model-not-understood",
        severity="error",
        message=f"{unknown.where}: {unknown.what}" if unknown.where else unknown.what,
        remedy=unknown.hint or "kvadvise makes no number for what it does not understand",
        source="config.json",
    )
    return msgspec.structs.replace(blank, outcome="not_understood", starts=None, findings=(finding,))


def _violated(violation: Violation) -> Finding:
    return Finding(
        code=violation.code,
        severity="error",
        message=violation.message,
        remedy=violation.hint,
        source=violation.source,
    )


def memory_of(sized: Sized) -> Memory:
    """The ledger of the rank with least room, as the plan shows it."""
    ledger = sized.ledger
    return Memory(
        total_bytes=ledger.total_bytes,
        budget_bytes=ledger.budget_bytes,
        weights_bytes=ledger.weights_bytes,
        activation_bytes=ledger.activation_bytes,
        non_torch_bytes=ledger.non_torch_bytes,
        cuda_graph_bytes=ledger.cuda_graph_bytes,
        cuda_graphs_in_budget=ledger.cuda_graphs_in_budget,
        kv_cache_bytes=sized.kv_bytes,
        outside_budget_bytes=ledger.outside_budget_bytes,
        stage=sized.stage,
    )


def measured_of(problem: Problem, sized: Sized) -> Measured:
    """The key a start of this configuration has, and what is known of it."""
    key = key_of(problem.model, sized.engine, problem.release)
    known = find_measurement(problem.measured, key)
    return Measured(key=key, file=key.file_name, starts=known.starts if known is not None else 0)


def kv_of(problem: Problem, sized: Sized) -> Kv:
    """The pool from the middle of the band, with its ends; needed is what the target's p95 requests hold."""
    layout, pool = sized.layout, sized.pool
    return Kv(
        block_size=layout.block_size,
        num_blocks=pool.num_blocks,
        num_blocks_low=sized.pool_low.num_blocks,
        num_blocks_high=sized.pool_high.num_blocks,
        bytes_per_block=pool.bytes_per_block,
        bytes_per_token=layout.bytes_per_token,
        groups=groups_of(layout),
        capacity_tokens=pool.capacity_tokens,
        max_concurrency=pool.max_concurrency,
        bytes_per_request=layout.bytes_per_request,
        estimated_max_model_len=pool.estimated_max_model_len,
        needed_bytes=problem.blocks_needed(sized.requests) * pool.bytes_per_block,
        granted_bytes=pool.num_blocks * pool.bytes_per_block,
        attention_backend=layout.backend,
    )


def _subject(facts: ModelFacts, gpu: Gpu, version: Version, architecture: str | None) -> Subject:
    return Subject(
        model=facts.id,
        revision=facts.revision,
        resolved_from=facts.resolved_from,
        architecture=architecture,
        gpu=gpu.name,
        gpu_count=gpu.count,
        vllm_version=str(version),
    )


def _echo(workload: WorkloadFile) -> dict[str, Any]:
    """The workload as it was understood, so that a plan can be launched and verified by itself."""
    fields: dict[str, Any] = msgspec.to_builtins(workload)
    return {name: value for name, value in fields.items() if name not in _LEFT_OUT and value is not None}
