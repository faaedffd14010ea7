"""One configuration, sized: engine, layout, memory and pool together, and whether vLLM would start with it.

Every decision of the planner compares two of these. The pool is made three times, from the low, the middle
and the high end of the KV memory's band; requests are counted at the low end, so that nothing is promised
that may not be there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from advisor.engine import Engine, resolve_engine
from advisor.estimate import Estimate, exact
from advisor.facts import ModelFacts
from advisor.gpu import Gpu
from advisor.kv.layout import KvLayout, Pool, Requests, lay_out
from advisor.ledger import MemoryLedger
from advisor.measured import Measurement, find_measurement, key_of
from advisor.model.spec import ModelSpec
from advisor.overhead_constants import OverheadConstants
from advisor.rank import rank_ledgers, stage_weights
from advisor.versions import Version, parse_version
from advisor.weights import WeightCount
from advisor.workload import WorkloadFile

AUTO_LENGTH = (-1, "auto")  # max_model_len as long as the pool allows, from 0.14
_UNKNOWN_RELEASE = 2  # times the bands of what a start costs
Verdict = bool | None  # True: surely; False: surely not; None: within the band


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be planned: the inputs that stay the same while settings are tried."""

    workload: WorkloadFile
    facts: ModelFacts
    model: ModelSpec
    gpu: Gpu
    version: Version
    constants: OverheadConstants
    pins: dict[str, Any]
    counted: dict[tuple[Any, ...], WeightCount] = msgspec.field(default_factory=dict)  # weights, once for each split
    is_release_known: bool = True  # false where a newer one is planned as the newest known: bands are doubled then
    measured: tuple[Measurement, ...] = ()  # what earlier starts cost, for the keys that were looked up

    @property
    def release(self) -> str:
        """The vLLM release as stated, which may be newer than the one it is planned as."""
        stated = self.workload.engine.get("vllm_version")
        return str(self.version if stated is None else parse_version(str(stated)))

    @property
    def replicas(self) -> int:
        """Data-parallel engines, each with the whole model and its own KV cache."""
        size = self.pins.get("data_parallel_size", 1)
        return size if isinstance(size, int) and size > 0 else 1

    @property
    def target(self) -> int:
        """Requests each data-parallel engine must hold at once."""
        return -(-self.workload.workload.concurrency // self.replicas)

    @property
    def prompt_tokens(self) -> int:
        """The p95 prompt with the chat template, if that was not counted in it."""
        load = self.workload.workload
        return load.prompt_tokens.at_p95 + load.chat_template_tokens

    @property
    def output_tokens(self) -> int:
        """The p95 output."""
        return self.workload.workload.output_tokens.at_p95

    @property
    def longest_tokens(self) -> int:
        """The longest request known: longest prompt, template and longest output together."""
        load = self.workload.workload
        return load.prompt_tokens.longest + load.chat_template_tokens + load.output_tokens.longest

    def promised(self, at_p95: int) -> int:
        """`at_p95` times the policy's headroom, rounded down without binary rounding."""
        return math.floor(at_p95 * Fraction(repr(self.workload.policy.headroom)))

    def blocks_needed(self, requests: Requests) -> int:
        """Blocks that hold the target with its headroom at once, a shared prefix once, and the one kept
        back."""
        at_once = math.ceil(self.target / Fraction(repr(self.workload.policy.headroom)))
        return 1 + requests.shared_blocks + at_once * requests.blocks_per_request


class Sized(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration with everything that follows from it."""

    engine: Engine
    layout: KvLayout
    weights: WeightCount
    ledgers: tuple[MemoryLedger, ...]  # per pipeline rank
    pool: Pool
    pool_low: Pool
    pool_high: Pool
    requests: Requests  # at the low end
    requests_high: Requests
    available: tuple[Estimate, ...]  # KV bytes per pipeline rank
    checks: dict[str, Verdict]

    @property
    def starts(self) -> Verdict:
        """Whether vLLM starts: only if every check surely holds, not if one surely fails."""
        if any(verdict is False for verdict in self.checks.values()):
            return False
        return None if any(verdict is None for verdict in self.checks.values()) else True

    @property
    def at_p95(self) -> int:
        """Whole requests of p95 length held at once, at the low end."""
        return self.requests.count

    @property
    def binding(self) -> str:
        """What keeps the server from starting, else what keeps the next request out."""
        for name, verdict in self.checks.items():
            if verdict is not True:
                return name
        return self.requests.bound_by

    @property
    def stage(self) -> int:
        """The pipeline rank that decides: fewest blocks at the low end."""
        return self.pool_low.stage

    @property
    def ledger(self) -> MemoryLedger:
        """The memory of the deciding rank."""
        return self.ledgers[self.stage]

    @property
    def kv_bytes(self) -> Estimate:
        """What the deciding rank's pool is made from."""
        return self.available[self.stage]

    @property
    def world_size(self) -> int:
        """GPUs of one data-parallel engine."""
        return self.engine.tensor_parallel_size * self.engine.pipeline_parallel_size


def size(problem: Problem, moves: dict[str, Any]) -> Sized:
    """Size the configuration that the pins and `moves` make; a pin wins over a move.

    Raises EngineRefuses where vLLM would refuse it whatever the memory.
    """
    sized = _size(problem, moves | problem.pins)
    if problem.pins.get("max_model_len") not in AUTO_LENGTH or sized.pool_low.starts:
        return sized
    fitted = sized.pool_low.estimated_max_model_len  # vLLM _auto_fit_max_model_len
    return sized if fitted < 1 else _size(problem, moves | problem.pins | {"max_model_len": fitted})


def _size(problem: Problem, arguments: dict[str, Any]) -> Sized:
    engine = resolve_engine(problem.model, problem.gpu, problem.version, arguments)
    layout = lay_out(problem.model, engine)
    weights = _weights(problem, engine)
    ledgers = rank_ledgers(
        problem.model,
        problem.facts,
        engine,
        problem.constants,
        weights,
        widen=1 if problem.is_release_known else _UNKNOWN_RELEASE,
        known=find_measurement(problem.measured, key_of(problem.model, engine, problem.release))
        if problem.measured
        else None,
    )
    available = _available(engine, layout, ledgers)
    pool = layout.pool([e.value for e in available])
    low = layout.pool([e.low for e in available])
    high = layout.pool([e.high for e in available])
    return Sized(
        engine=engine,
        layout=layout,
        weights=weights,
        ledgers=ledgers,
        available=available,
        pool=pool,
        pool_low=low,
        pool_high=high,
        requests=_requests(problem, layout, low),
        requests_high=_requests(problem, layout, high),
        checks=_checks(problem, engine, ledgers, low, high),
    )


def _weights(problem: Problem, engine: Engine) -> WeightCount:
    """Counted once for every way to split and load the model."""
    key = (
        problem.facts.id,
        engine.tensor_parallel_size,
        engine.pipeline_parallel_size,
        engine.data_parallel_size,
        engine.enable_expert_parallel,
        engine.dtype,
        engine.quantization,
        engine.max_model_len,
        engine.gpu.compute_capability,
        engine.gpu.vendor,
        str(engine.pinned.get("limit_mm_per_prompt")),
        bool(engine.pinned.get("language_model_only")),
        problem.workload.model.weights_gib_per_gpu,
    )
    if key not in problem.counted:
        problem.counted[key] = stage_weights(problem.facts, engine, problem.workload.model)
    return problem.counted[key]


def _available(engine: Engine, layout: KvLayout, ledgers: Sequence[MemoryLedger]) -> tuple[Estimate, ...]:
    """KV bytes per pipeline rank; num_gpu_blocks_override replaces whatever there is (vLLM
    get_kv_cache_configs)."""
    if engine.num_gpu_blocks_override is not None:
        return tuple(exact(engine.num_gpu_blocks_override * per_block) for per_block in layout.bytes_per_block)
    return tuple(ledger.kv_cache_bytes for ledger in ledgers)


def _requests(problem: Problem, layout: KvLayout, pool: Pool) -> Requests:
    load = problem.workload.workload
    return layout.requests(pool, problem.prompt_tokens, problem.output_tokens, load.shared_prefix_tokens)


def _checks(
    problem: Problem, engine: Engine, ledgers: Sequence[MemoryLedger], low: Pool, high: Pool
) -> dict[str, Verdict]:
    """What vLLM, or the device, demands of a start; the first that fails is what binds."""
    world = engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size
    one_request = low.starts or low.mamba_blocks_exceeded
    return {
        "gpus": True if problem.gpu.is_cpu else world <= problem.gpu.count,
        "weights": _weights_fit(ledgers),
        "free_memory": _all(ledger.start_check for ledger in ledgers),
        "start_check": _between(one_request, high.starts or high.mamba_blocks_exceeded),
        "mamba_blocks": _between(not low.mamba_blocks_exceeded, not high.mamba_blocks_exceeded),
        "outside_budget": _all(ledger.outside_check for ledger in ledgers),
    }


def _weights_fit(ledgers: Sequence[MemoryLedger]) -> Verdict:
    """Whether the weights fit the device at all; what else has to fit is the other checks'."""
    if all(ledger.weights_bytes.high <= ledger.total_bytes.low for ledger in ledgers):
        return True
    return False if any(ledger.weights_bytes.low > ledger.total_bytes.high for ledger in ledgers) else None


def _all(verdicts: Iterable[Verdict]) -> Verdict:
    met = list(verdicts)
    if False in met:
        return False
    return None if None in met else True


def _between(low: bool, high: bool) -> Verdict:
    """A check that held at the low end of the band holds; one that failed at the high end fails."""
    if low:
        return True
    return None if high else False
