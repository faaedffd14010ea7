"""How many sequences and tokens one step takes, and how many steps are in flight at once.

Source: vLLM 0.32 engine/arg_utils.py (get_batch_defaults, _set_default_max_num_seqs_and_batched_tokens_args),
config/scheduler.py, config/vllm.py (max_concurrent_batches, async_scheduling); boundaries from layout-by-version.
"""

from __future__ import annotations

from typing import Any

from advisor.arguments import Violation
from advisor.drafting import speculative_config
from advisor.errors import EngineRefuses
from advisor.gpu import Gpu
from advisor.model.spec import ModelSpec
from advisor.model_runner import uses_v2_runner
from advisor.units import GIB
from advisor.versions import Version

_ASYNC_METHODS = frozenset({"eagle", "eagle3", "extract_hidden_states", "ngram_gpu", "draft_model", "dspark", "dflash"})


def batch_sizes(
    gpu: Gpu, version: Version, pins: dict[str, Any], max_model_len: int, *, chunked: bool, ranks: int
) -> tuple[int, int]:
    """(max_num_seqs, max_num_batched_tokens) of the API server: the user's, else vLLM's by device memory and name."""
    batched, seqs = _device_defaults(gpu, version, ranks)
    asked_batched, asked_seqs = pins.get("max_num_batched_tokens"), pins.get("max_num_seqs")
    if asked_seqs is not None:
        seqs = int(asked_seqs)
    if asked_batched is not None:
        batched = int(asked_batched)
        if not chunked and batched < max_model_len:
            raise EngineRefuses(
                "batched-tokens-below-length",
                f"max_num_batched_tokens {batched} is smaller than max_model_len {max_model_len} while chunked prefill "
                "is off",
                hint="raise max_num_batched_tokens, lower max_model_len, or leave chunked prefill on",
                source="vLLM config/scheduler.py: verify_max_model_len",
            )
    else:
        if not chunked:
            batched = max(max_model_len, batched)
        batched = min(seqs * max_model_len, batched)
    if asked_seqs is None:
        seqs = min(seqs, batched)
    if batched < seqs:
        raise EngineRefuses(
            "batched-tokens-below-seqs",
            f"max_num_batched_tokens {batched} must be at least max_num_seqs {seqs}",
            hint=f"set max_num_batched_tokens to {seqs} or more, or lower max_num_seqs",
            source="vLLM config/scheduler.py",
        )
    return seqs, batched


def _device_defaults(gpu: Gpu, version: Version, ranks: int) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) by device."""
    if gpu.is_cpu:
        return 2048 * ranks, 128 * ranks
    total = gpu.total_bytes.value
    if version >= (0, 28) and total >= 160 * GIB:
        return 16384, 1024
    small_gb10 = version >= (0, 33) and gpu.compute_capability == (12, 1)
    spared = "a100" in gpu.device_name.lower() and version >= (0, 9)
    if total >= 70 * GIB and not spared and not small_gb10:
        return 8192, 1024
    # up to about 0.8.3 every GPU had 1024 (vllm#15105 and one public log)
    return 2048, 1024 if version < (0, 8, 4) else 256


def concurrent_batches(model: ModelSpec, gpu: Gpu, version: Version, pp: int, *, asynchronous: bool) -> int:
    """Batches that may hold blocks at once; before 0.26 vLLM reserved for one, whatever ran."""
    if version < (0, 26):
        return 1
    if not asynchronous:
        return pp
    second_runner = not gpu.is_cpu and uses_v2_runner(
        version,
        model.architecture,
        is_moe=bool(model.num_experts),
        is_quantized=model.quantization.method is not None,
        is_hybrid=model.is_hybrid,
        is_pooling=model.is_pooling,
    )
    if second_runner:
        return pp + 1
    return 2 if pp <= 1 else pp


def schedules_ahead(model: ModelSpec, gpu: Gpu, pins: dict[str, Any]) -> bool:
    """Whether steps are scheduled before the last one is settled: what was asked, else vLLM's own choice."""
    asked = pins.get("async_scheduling")
    if gpu.is_cpu:
        return False
    if asked is not None:
        return bool(asked)
    return not model.is_pooling and not drafts_one_at_a_time(pins)


def drafts_one_at_a_time(pins: dict[str, Any]) -> str:
    """Why speculation keeps steps from being scheduled ahead; empty where it does not."""
    config = speculative_config(pins)
    if config is None:
        return ""
    method = str(config.get("method") or ("draft_model" if config.get("model") else "ngram"))
    if method not in _ASYNC_METHODS and not method.endswith("mtp"):
        return f"the speculative method {method}"
    return "disable_padded_drafter_batch" if config.get("disable_padded_drafter_batch") else ""


def scheduling_violations(pins: dict[str, Any]) -> tuple[Violation, ...]:
    """async_scheduling asked for together with a drafter that does not have it."""
    why = drafts_one_at_a_time(pins)
    if not why or pins.get("async_scheduling") is not True:
        return ()
    violation = Violation(
        code="async-speculation",
        key="async_scheduling",
        message=f"async_scheduling is not possible with {why}",
        hint="leave async_scheduling out, or take another drafter",
        source="vLLM config/vllm.py: async_scheduling",
    )
    return (violation,)
