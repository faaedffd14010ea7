"""A plan's own knowledge as the context of a diagnosis."""

from __future__ import annotations

import pytest

from advisor.estimate import exact
from advisor.plan_types import Memory, Plan, Subject
from kvadvise.pipeline import plan
from launch.diagnosis import diagnose
from launch.diagnosis_context import as_started, context_of
from launch.diagnosis_types import Context, ExitState, Holder
from launch.gpu_state import GpuProcess, GpuState
from tests.launch.engines import command
from tests.launch.logs import log

GIB = 1024**3


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan("chat-8k")


def test_a_plan_s_flags_sizes_and_load_are_known(made: Plan) -> None:
    context = context_of(made)
    assert made.memory is not None
    assert made.subject is not None
    assert made.concurrency is not None
    assert context.flags == made.flags
    assert context.version == made.subject.vllm_version
    assert context.total_bytes == made.memory.total_bytes.value
    assert context.weights_bytes == made.memory.weights_bytes.value
    assert context.planned_kv_bytes == made.memory.kv_cache_bytes.value
    assert context.target_concurrency == made.concurrency.target
    assert context.longest_request_tokens is not None
    assert context.p95_request_tokens is not None
    assert context.p95_request_tokens <= context.longest_request_tokens <= made.flags["max_model_len"]


def test_the_launcher_adds_the_engine_and_the_gpus(made: Plan) -> None:
    wanted = command({}, port=8123)
    mine = GpuProcess(pid=7, name="VLLM::EngineCor", used_bytes=3 * GIB)
    one = GpuState(index=0, uuid="GPU-1", name="L40S", total_bytes=48 * GIB, free_bytes=40 * GIB, processes=(mine,))
    alone = as_started(context_of(made), wanted, {"HF_HUB_OFFLINE": "1"}, [one])
    assert (alone.version, alone.free_bytes, alone.all_free_bytes) == ("0.32.0", 40 * GIB, (40 * GIB,))
    assert alone.others == (Holder(7, "VLLM::EngineCor", 3 * GIB),)
    assert alone.environment["HF_HUB_OFFLINE"] == "1"
    assert alone.target_concurrency == context_of(made).target_concurrency
    two = as_started(context_of(made), wanted, {}, [one, one])
    assert (two.free_bytes, two.others, len(two.all_free_bytes)) == (None, (), 2)


def test_a_plan_without_numbers_leaves_them_unknown() -> None:
    refused = Plan(kvadvise_version="0", inputs_sha256="", outcome="invalid")
    assert context_of(refused) == Context()


def test_a_pool_below_zero_is_no_planned_pool() -> None:
    size = exact(GIB)
    memory = Memory(
        total_bytes=size, budget_bytes=size, weights_bytes=size, activation_bytes=size, non_torch_bytes=size,
        cuda_graph_bytes=size, cuda_graphs_in_budget=True, kv_cache_bytes=exact(-5), outside_budget_bytes=size,
    )  # fmt: skip
    subject = Subject(
        model="m", revision=None, resolved_from="directory", architecture=None, gpu="CPU", gpu_count=1,
        vllm_version="0.32.0",
    )  # fmt: skip
    context = context_of(
        Plan(kvadvise_version="0", inputs_sha256="", outcome="does_not_fit", memory=memory, subject=subject)
    )
    assert context.planned_kv_bytes is None
    assert context.total_bytes is None  # the CPU's is no device's


def test_the_target_reaches_the_remedy(made: Plan) -> None:
    context = context_of(made)
    assert context.target_concurrency is not None
    found = diagnose(log("p19-lora-1024"), ExitState(code=1), context)
    assert found[0].change == {"max_num_seqs": max(2, 1 << (context.target_concurrency - 1).bit_length())}
