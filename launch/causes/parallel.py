"""Ranks: what does not divide, GPUs that are not there, and the paths between them."""

from __future__ import annotations

import re

from launch.diagnosis_types import Advice, Rule, Seen, fixed
from launch.levers import smaller_tp

_SHM = "/dev/" + "shm"


def _heads(seen: Seen) -> Advice:
    heads, tp, context = int(seen.match["heads"]), int(seen.match["tp"]), seen.case.context
    fits = smaller_tp(heads, tp, context.allowed_tp, context.gpu_count)
    return Advice(
        message=f"{heads} attention heads do not divide over tensor_parallel_size {tp}",
        remedy=f"set tensor_parallel_size to {fits}; the other GPUs can be pipeline stages (pipeline_parallel_size) or "
        "replicas",
        change={"tensor_parallel_size": fits},
        confidence="high" if context.allowed_tp else "medium",
        signals=(
            "heads and ranks of the error",
            *(("the sizes that divide this model",) if context.allowed_tp else ()),
        ),
        not_seen=() if context.allowed_tp else ("KV heads and MLP width, which have to divide too",),
    )


def _width(seen: Seen) -> Advice | None:
    tp = seen.case.flag("tensor_parallel_size")
    what, by = int(seen.match[1]), int(seen.match[2])
    if not isinstance(tp, int) or tp < 2 or by != tp:
        return None
    fits = smaller_tp(what, tp, seen.case.context.allowed_tp, seen.case.context.gpu_count)
    return Advice(
        message=f"a dimension of {what} does not divide over tensor_parallel_size {tp}",
        remedy=f"set tensor_parallel_size to {fits}",
        change={"tensor_parallel_size": fits},
        confidence="medium",
        signals=("both numbers of the error",),
    )


def _quant_group(seen: Seen) -> Advice:
    tp = seen.case.flag("tensor_parallel_size")
    half = tp // 2 if isinstance(tp, int) and tp > 1 else None
    moe = seen.case.context.is_moe or "moe" in seen.line.text.lower()
    code = "tp-fp8-block" if "block" in seen.match[0] else "tp-quant-group"
    if moe and half:
        return Advice(
            code=code,
            message=f"the experts' width per rank is no multiple of the quantisation's block: {seen.match[0][:120]}",
            remedy=f"set enable_expert_parallel, or tensor_parallel_size {half}",
            change={"enable_expert_parallel": True},
            confidence="medium",
        )
    return Advice(
        code=code,
        message=f"a layer's width per rank is no multiple of the quantisation's block: {seen.match[0][:120]}",
        remedy=f"set tensor_parallel_size to {half}" if half else "use a smaller tensor_parallel_size",
        change={"tensor_parallel_size": half} if half else None,
        confidence="medium",
    )


def _too_few_gpus(seen: Seen) -> Advice:
    needed, there = int(seen.match[1]), int(seen.match[2])
    tp, pp = seen.case.flag("tensor_parallel_size"), seen.case.flag("pipeline_parallel_size")
    allowed = [t for t in seen.case.context.allowed_tp if t <= there] or [2**n for n in range(8) if 2**n <= there]
    fits = max(allowed, default=None)
    change = {"tensor_parallel_size": fits} if fits and tp == needed and pp in (None, 1) else None
    return Advice(
        message=f"{needed} GPUs are asked for and this node shows {there}",
        remedy=(f"set tensor_parallel_size to {fits}" if change else "lower the parallel sizes")
        + ", or make the other GPUs visible (CUDA_VISIBLE_DEVICES, the container's --gpus); several nodes need nnodes "
        "or ray",
        change=change,
        signals=("both numbers of the error",),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        codes=("tp-heads",),
        hint="must be divisible by tensor parallel size",
        pattern=re.compile(
            r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<tp>\d+)\)"
        ),
        explain=_heads,
        source="vLLM config/model.py: verify_with_parallel_config; gpustack#2259, AdaptThink#1",
        rank=5,
    ),
    Rule(
        codes=("tp-fp8-block", "tp-quant-group"),
        hint=(
            "not divisible by weight quantization",
            "not divisible by group_size",
            "divisible by weight quantization",
        ),
        pattern=re.compile(
            r"\S{1,60} ?= ?\d{1,9} is not divisible by weight quantization block_\w = \d+"
            r"|input_size_per_partition=\d+.{0,60}? is not divisible by group_size=\d+"
            r"|[\w ]{0,40}\d+ is not divisible by weight quantization"
        ),
        explain=_quant_group,
        source="vLLM model_executor/layers/quantization/utils/fp8_utils.py, distributed/utils.py",
        rank=12,
    ),
    Rule(
        codes=("tp-width",),
        hint="is not divisible by",
        pattern=re.compile(r"AssertionError: (\d+) is not divisible by (\d+)"),
        explain=_width,
        source="vLLM distributed/utils.py: ensure_divisibility",
        rank=14,
    ),
    Rule(
        codes=("gpu-count",),
        hint="larger than the number of available gpus",
        pattern=re.compile(r"World size \((\d+)\) is larger than the number of available GPUs \((\d+)\)"),
        explain=_too_few_gpus,
        source="vLLM config/parallel.py",
        rank=5,
    ),
    Rule(
        codes=("gpu-count",),
        hint=("invalid device ordinal", "exceeds the total number of available gpus"),
        pattern=re.compile(
            r"invalid device ordinal|number of required GPUs exceeds the total number of available GPUs"
        ),
        explain=fixed(
            "more ranks were asked for than GPUs are visible",
            "lower tensor_parallel_size, or make the other GPUs visible (CUDA_VISIBLE_DEVICES, the container's --gpus)",
        ),
        source="CUDA; vLLM executor/ray_utils.py",
        rank=6,
    ),
    Rule(
        codes=("container-shm",),
        hint=("shared memory segment", _SHM, "bus error", "psm_"),
        pattern=re.compile(
            r"(?:Error while creating shared memory segment|[Ff]ailed to (?:open|extend|map) ?(?:shared memory)?) ?"
            r"/dev/shm/\S*(?: \(size \d+\))?|No space left on device:? ?.{0,20}(?:/dev/shm|/psm_)\S*"
            r"|/dev/shm.{0,80}No space left"
            r"|(?:Unexpected b|B)us error(?: \(core dumped\)| encountered in worker)?"
        ),
        explain=fixed(
            "shared memory is full or too small: ranks exchange data through /dev/shm, which containers limit to 64 MB",
            "run the container with --ipc=host or --shm-size=16g (Kubernetes: a Memory emptyDir at /dev/shm); this is "
            "not the network",
        ),
        source="NCCL; production-stack#276, vllm#1710",
        hides=("nccl", "disk-full", "killed-by-signal", "worker-died"),
        rank=7,
    ),
    Rule(
        codes=("peer-access",),
        hint=("peer access is not supported", "custom_all_reduce"),
        pattern=re.compile(
            r"peer access is not supported|custom_all_reduce\.cuh:\d+ '|custom_all_reduce.{0,200}invalid argument"
        ),
        explain=fixed(
            "the GPUs cannot read each other's memory, which the custom all-reduce needs",
            "set disable_custom_all_reduce",
            change={"disable_custom_all_reduce": True},
            confidence="medium",
        ),
        source="vLLM distributed/device_communicators/custom_all_reduce.py",
        hides=("nccl",),
        rank=10,
    ),
    Rule(
        codes=("nccl",),
        hint=("nccl", "rccl"),
        pattern=re.compile(
            r"nccl(?:UnhandledCudaError|SystemError|InternalError|RemoteError|InvalidUsage)|(?:NCCL|RCCL) error"
            r"|DistBackendError.*NCCL|Watchdog caught collective operation timeout"
        ),
        explain=fixed(
            "the ranks could not talk to each other: {0}",
            "start once with NCCL_DEBUG=WARN and read its own reason: shared memory, the interface "
            "(NCCL_SOCKET_IFNAME), or another rank that died first",
            confidence="medium",
        ),
        source="NCCL",
        rank=35,
    ),
)
