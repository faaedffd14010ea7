"""The keys of a workload file (`kvadvise.workload/1`): which there are and what each takes."""

from __future__ import annotations

import re
from typing import Any

from advisor import workload_checks as checks
from advisor.arrival_fields import ARRIVALS, TRACE
from advisor.gate_keys import GATE
from advisor.problems import shown
from advisor.workload_fields import (
    Field,
    Reading,
    Section,
    WrongValueError,
    choice,
    number,
    said,
    share,
    text,
    text_or,
    whole,
)
from advisor.workload_pins import pins
from advisor.yaml_nodes import Mapping, Node, Scalar, to_plain

SCHEMA = "kvadvise.workload/1"

_CAPABILITY = re.compile(r"([1-9]\d?)\.(\d)")
_SM = re.compile(r"sm_?([1-9]\d?)(\d)")
_SEVERAL_GPUS = re.compile(r"(\d+)\s*[x×*]\s*(\S.*)|(\S.*?)\s+[x×*]\s*(\d+)", re.IGNORECASE)
_HUB_ADDRESS = re.compile(r"https?://[^/]+/([^/]+/[^/?#]+).*")


def capability(_reading: Reading, node: Node, _key: str) -> tuple[int, int]:
    """NVIDIA's compute capability, `9.0` or `"12.1"`."""
    expected = "expected NVIDIA's major.minor"
    if not isinstance(node, Scalar) or node.value is None or isinstance(node.value, bool):
        raise WrongValueError(f"is {said(node)}", f"{expected}, such as 9.0")
    written = node.text.strip()
    match = _CAPABILITY.fullmatch(written)
    if match is not None:
        return int(match[1]), int(match[2])
    sm = _SM.fullmatch(written.lower())
    instead = f"{sm[1]}.{sm[2]}" if sm else f"{written}.0" if written in map(str, range(1, 100)) else ""
    raise WrongValueError(f"is {said(node)}", f"{expected}: write {instead}" if instead else f"{expected}, such as 9.0")


def gpu_name(reading: Reading, node: Node, key: str) -> str:
    """A catalogue name; how many there are goes into `count`."""
    name: str = text("a GPU's name, auto or cpu")(reading, node, key)
    several = _SEVERAL_GPUS.fullmatch(name)
    if several is not None:
        count, one = (several[1], several[2]) if several[1] else (several[4], several[3])
        raise WrongValueError(
            f"is {said(node)}", f"expected one GPU's name: write gpu: {{name: {shown(one)}, count: {count}}}"
        )
    return name


def model_id(reading: Reading, node: Node, key: str) -> str:
    """A hub id, a catalogue name or a directory; not a web address."""
    name: str = text("a hub id such as org/name, a catalogue name or a directory")(reading, node, key)
    address = _HUB_ADDRESS.fullmatch(name)
    if address is not None:
        raise WrongValueError(f"is {said(node)}", f"expected the hub id: write {shown(address[1])}")
    return name


def saved_plan(_reading: Reading, node: Node, _key: str) -> dict[str, Any]:
    """A plan, as written."""
    if not isinstance(node, Mapping):
        raise WrongValueError(f"is {said(node)}, not a mapping", "expected a plan as `kvadvise plan --json` prints it")
    plan: dict[str, Any] = to_plain(node)
    return plan


def _lengths(example: str) -> Section:
    fields = dict.fromkeys(checks.PERCENTILES, whole("tokens"))
    return Section(
        fields=fields,
        required=((("p95", "max"), "a whole number of tokens"),),
        example=example,
        check=checks.lengths,
    )


MODEL = Section(
    fields={
        "id": model_id,
        "revision": text("a commit, tag or branch"),
        "path": text("a directory"),
        "quantization": text("a quantisation vLLM knows, such as fp8"),
        "weights_gib_per_gpu": number("gib"),
    },
    required=((("id", "path"), "a hub id such as org/name, or a directory"),),
    check=checks.model,
)
GPU = Section(
    fields={
        "name": gpu_name,
        "count": whole("gpus", 1, 65536),
        "memory_gib": number("gib"),
        "free_gib": number("gib"),
        "compute_capability": capability,
    },
    required=((("name",), "a GPU's name, auto or cpu"),),
    check=checks.gpu,
)
LOAD = Section(
    fields={
        "prompt_tokens": _lengths("a mapping such as {p95: 6500, max: 7168}"),
        "output_tokens": _lengths("a mapping such as {p95: 900, max: 1024}"),
        "concurrency": whole("requests"),
        "requests_per_s": number("number", maximum=1e6),
        "shared_prefix_tokens": whole("tokens", 0),
        "chat_template_tokens": whole("tokens", 0),
        "trace": text_or("file", text("a path"), "a path", TRACE),
        "arrivals": ARRIVALS,
    },
    required=(
        (("prompt_tokens",), "such as {p95: 6500, max: 7168}, also where a trace is given"),
        (("output_tokens",), "such as {p95: 900, max: 1024}, also where a trace is given"),
        (("concurrency",), "requests in flight that must be served at once"),
    ),
    check=checks.load,
)
SLO = Section(
    fields={
        **dict.fromkeys(("ttft_p50_s", "ttft_p95_s", "ttft_p99_s"), number("seconds", maximum=3600)),
        **dict.fromkeys(("tpot_p50_s", "tpot_p95_s", "tpot_p99_s"), number("seconds", maximum=10)),
        **dict.fromkeys(("e2e_p95_s", "e2e_p99_s"), number("seconds", maximum=86400)),
    },
    check=checks.objectives,
)
POLICY = Section(fields={"kv_cache_quantization": choice("never", "ask", "prefer"), "headroom": share()})
GATE_SECTION = Section(fields={name: key.field for name, key in GATE.items()}, check=checks.gate)

_TOP: dict[str, Field] = {
    "schema": choice(SCHEMA),
    "name": text("a short name"),
    "description": text("a few words", long=True),
    "origin": text("where the percentiles come from", long=True),
    "model": text_or("id", model_id, "a hub id, a catalogue name or a directory", MODEL),
    "gpu": text_or("name", gpu_name, "a GPU's name, auto or cpu", GPU),
    "workload": LOAD,
    "slo": SLO,
    "policy": POLICY,
    "engine": pins,
    "gate": GATE_SECTION,
    "plan": saved_plan,
}
WORKLOAD = Section(
    fields=_TOP,
    required=(
        (("model",), "a hub id such as org/name, a catalogue name or a directory"),
        (("gpu",), "a GPU's name, auto or cpu"),
        (("workload",), "with prompt_tokens (p95 or max), output_tokens (p95 or max) and concurrency"),
    ),
    example="the keys model, gpu and workload",
)
SECTIONS: dict[str, Section] = {
    "": WORKLOAD,
    "workload": LOAD,
    "workload.prompt_tokens": _lengths(""),
    "workload.arrivals": ARRIVALS,
    "workload.trace": TRACE,
    "slo": SLO,
    "policy": POLICY,
    "gate": GATE_SECTION,
    "gpu": GPU,
    "model": MODEL,
}
ELSEWHERE = {section: tuple(keys.fields) for section, keys in SECTIONS.items()}
ELSEWHERE["engine"] = (  # the arguments people put elsewhere; the section itself takes any
    "vllm_version",
    "max_model_len",
    "gpu_memory_utilization",
    "max_num_batched_tokens",
    "kv_cache_dtype",
    "block_size",
    "tensor_parallel_size",
    "pipeline_parallel_size",
)
