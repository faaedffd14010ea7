"""Whatever a workload file holds, the command answers: exit code 0, 2 or 3, JSON on stdout, never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvadvise.main import run
from kvadvise.profile_store import bundled_dir

SEEDS = [path.read_text() for path in sorted(bundled_dir().glob("*.yaml"))]
SEEDS.append(
    """model: {id: Qwen/Qwen3-8B, weights_gib_per_gpu: 15.27}
gpu: {name: H100 80GB, count: 4, memory_gib: 79.1, free_gib: 78.5, compute_capability: 9.0}
workload: {prompt_tokens: {max: 2000}, output_tokens: {max: 100}, concurrency: 4}
engine: {vllm_version: "0.11.2", tensor_parallel_size: 2, max_num_seqs: 64, kv_cache_dtype: fp8, block_size: 32}
"""
)
TOKENS = st.sampled_from(
    [
        *(
            "0",
            "-1",
            "1",
            "3",
            "7",
            "16",
            "1e9",
            "1e400",
            ".nan",
            ".inf",
            "-.inf",
            "null",
            "~",
            "true",
            "no",
            "0x10",
            "010",
        ),
        *(
            "99999999999999999999",
            "1.5",
            "0.0",
            '"5"',
            "[]",
            "{}",
            "[1, 2]",
            "{p95: 1}",
            "&a",
            "*a",
            "!!int 3",
            "<<",
            "''",
        ),
        *(
            "auto",
            "fp8",
            "fp8_e4m3",
            "nvfp4",
            "bfloat16",
            "int8",
            "RTX 4090",
            "T4",
            "MI300X",
            "cpu",
            "cuda",
            "B200",
            "L4",
        ),
        *("Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "BAAI/bge-m3", "google/gemma-3-27b-it"),
        *("0.8.5", '"0.8.5"', '"0.33.0"', '"9.9"', '"latest"', "tests", "/", "../..", "\u202e", "\x00", "é" * 50),
    ]
)
KEYS = st.sampled_from(
    [
        *("max_model_len", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype"),
        *("block_size", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enforce_eager"),
        *("num_gpu_blocks_override", "kv_cache_memory_bytes", "quantization", "dtype", "enable_prefix_caching"),
        *("enable_expert_parallel", "decode_context_parallel_size", "attention_backend", "speculative_config"),
        *("disable_hybrid_kv_cache_manager", "mamba_block_size", "mamba_cache_dtype", "enable_lora", "vllm_version"),
    ]
)


@st.composite
def files(draw: st.DrawFn) -> str:
    """A good file with a few things done to it: lines gone, doubled or swapped, values and keys put in, noise."""
    lines = draw(st.sampled_from(SEEDS)).splitlines()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(lines) - 1)))
        match draw(st.integers(0, 7)):
            case 0 if lines:
                del lines[at]
            case 1 if lines:
                lines.insert(at, lines[at])
            case 2 if lines:
                head, colon, _ = lines[at].partition(":")
                lines[at] = f"{head}{colon} {draw(TOKENS)}"
            case 3:
                lines.append(f"engine: {{{draw(KEYS)}: {draw(TOKENS)}, {draw(KEYS)}: {draw(TOKENS)}}}")
            case 4 if lines:
                lines[at] = lines[at][: draw(st.integers(0, 80))]
            case 5 if lines:
                lines[at] = " " * draw(st.integers(0, 4)) + lines[at]
            case 6:
                lines.insert(at, f"{draw(KEYS)}: {draw(TOKENS)}")
            case _ if lines:
                spot = draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:spot] + draw(st.text(max_size=4)) + lines[at][spot:]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("fuzz")
    before = dict(os.environ)
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    yield
    os.environ.clear()
    os.environ |= before


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "w.yaml"


def answered(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=files())
def test_every_file_gets_an_answer(text: str, workload: Path) -> None:
    workload.write_text(text, encoding="utf-8", errors="surrogatepass")
    code, out, err = answered("plan", str(workload), "--json")
    assert code in (0, 2, 3), err
    assert "Traceback" not in err
    plan = json.loads(out)
    codes = {"fits": 0, "fits_with_loss": 0, "does_not_fit": 3, "not_understood": 3, "invalid": 2}
    assert code == codes[plan["outcome"]]
    assert bool(plan["findings"]) or code == 0


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    text=files(),
    option=st.sampled_from([(), ("--format", "markdown"), ("--format", "vllm-config"), ("--format", "env")]),
)
def test_every_printer_prints_whatever_was_planned(text: str, option: tuple[str, ...], workload: Path) -> None:
    workload.write_text(text, encoding="utf-8", errors="surrogatepass")
    code, _, err = answered("plan", str(workload), *option)
    assert code in (0, 2, 3), err
    assert "Traceback" not in err
