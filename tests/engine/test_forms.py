"""vLLM's own argument parser reads what kvadvise prints: argv and --config say the same, and what the plan says."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import kvadvise
from kvadvise.printing.shell import launchable
from kvadvise.printing.vllm_config import vllm_config

SCRIPT = """
import importlib, json, sys
for place in ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args"):
    try:
        make = importlib.import_module(place).make_arg_parser
        break
    except ImportError:
        continue
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make(FlexibleArgumentParser())
for line in sys.stdin:
    read = vars(parser.parse_args(json.loads(line)))
    print(json.dumps({name: value if isinstance(value, (int, float, str, type(None))) else repr(value)
                      for name, value in read.items()}))
"""
BASE: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "gpu": {"name": "H100 80GB", "count": 2},
    "workload": {"prompt_tokens": {"p95": 1500, "max": 2048}, "output_tokens": {"max": 512}, "concurrency": 8},
}
PINS: dict[str, dict[str, Any]] = {
    "plain": {},
    "switches": {"enforce_eager": True, "enable_prefix_caching": False, "tensor_parallel_size": 2},
    "values": {"kv_cache_dtype": "fp8", "gpu_memory_utilization": 0.85, "max_num_seqs": 32, "dtype": "bfloat16"},
    "mapping": {"compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY"}},
}


@pytest.fixture(scope="module")
def parsed(
    engine_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[kvadvise.Plan, dict[str, Any], dict[str, Any]]]:
    """For each case the plan, and what vLLM reads from its argv and from its config file."""
    folder = tmp_path_factory.mktemp("forms")
    plans = {name: kvadvise.plan({**BASE, "engine": pins} if pins else BASE) for name, pins in PINS.items()}
    lines = []
    for name, plan in plans.items():
        assert launchable(plan), plan.findings
        config = folder / f"{name}.yaml"
        config.write_text(vllm_config(plan))
        lines += [json.dumps(plan.argv[2:]), json.dumps(["--config", str(config)])]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [engine_python, "-c", SCRIPT], input="\n".join(lines), capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    pairs = zip(answers[::2], answers[1::2], strict=True)
    return {name: (plan, *pair) for (name, plan), pair in zip(plans.items(), pairs, strict=True)}


@pytest.mark.parametrize("name", PINS)
def test_argv_and_config_are_read_alike(
    name: str, parsed: dict[str, tuple[kvadvise.Plan, dict[str, Any], dict[str, Any]]]
) -> None:
    _, from_argv, from_config = parsed[name]
    assert from_argv.pop("model_tag") == from_config.pop("model") == BASE["model"]
    from_argv.pop("model")
    from_config.pop("model_tag")
    assert from_argv == from_config


@pytest.mark.parametrize("name", PINS)
def test_every_flag_arrives(name: str, parsed: dict[str, tuple[kvadvise.Plan, dict[str, Any], dict[str, Any]]]) -> None:
    plan, from_argv, _ = parsed[name]
    plain = {key: value for key, value in plan.flags.items() if not isinstance(value, dict | list | type(None))}
    assert {key: from_argv[key] for key in plain} == plain
