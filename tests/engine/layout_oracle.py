# mypy: ignore-errors
"""Ask vLLM itself, with no GPU and no weights, how it would lay out a model's KV cache.

    ENGINE_PYTHON tests/engine/layout_oracle.py --batch cases.jsonl > answers.jsonl

One JSON object a line: `{"config": {...}, "case": {...}}`, where `case` may hold kv_gib, cap, tp, pp, dcp, ep,
args (vLLM's engine arguments), gpu_name, gpu_gib and remote_code; instead of `config`, `case.model` may name a
directory. The same line comes back with `answer`. vLLM's own model class is built on torch's meta device, every layer
registers its own KV spec, and vLLM's own planner lays them out; each case runs in a forked child, so vLLM is imported
once. Reads vLLM's internals (0.32): another version may need a mend here.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import signal
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import fake_cuda
import torch
from fake_ranks import set_rank
from oracle_model import model_dir

GIB = 1024**3
DEFAULTS = {"kv_gib": 20.0, "cap": "9.0", "tp": 1, "pp": 1, "dcp": 1, "ep": False, "args": {}}
SPEC_FIELDS = (
    "block_size",
    "num_kv_heads",
    "head_size",
    "head_size_v",
    "sliding_window",
    "attention_chunk_size",
    "shapes",
    "page_size_padded",
    "mamba_cache_mode",
    "num_speculative_blocks",
    "num_prefill_checkpoint_blocks",
    "alignment",
    "state_content_bytes",
    "num_head_slots",
)


def prepare(platform: str) -> None:
    """Import vLLM, on a fake card unless the CPU backend itself is asked, and inspect models in this process."""
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0" if platform == "cpu" else "1")
    fake_cuda.install_stub_packages()
    if platform == "cuda":
        fake_cuda.install()
    import torch.fx.experimental._config as fx_config
    from vllm.model_executor.models import registry
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs  # noqa: F401
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec  # noqa: F401

    fx_config.meta_nonzero_assume_all_nonzero = True
    registry._run_in_subprocess = lambda inspect: inspect()
    registry._LazyRegisteredModel._load_modelinfo_from_cache = lambda _self, _hash: None
    registry._LazyRegisteredModel._save_modelinfo_to_cache = lambda _self, _info, _hash: None


def engine_config(case: dict, model: str):
    """vLLM's own config object for the case."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    args = {
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "tensor_parallel_size": case["tp"],
        "pipeline_parallel_size": case["pp"],
        "decode_context_parallel_size": case["dcp"],
        "enable_expert_parallel": case["ep"],
        "distributed_executor_backend": "mp" if case["tp"] * case["pp"] > 1 else None,
        "trust_remote_code": "remote_code" in case,
        **case["args"],
    }
    return EngineArgs(model=model, **args).create_engine_config(UsageContext.OPENAI_API_SERVER)


def build(cfg):
    """The model on the meta device; returns bytes of parameters and buffers, and the layers' KV specs."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.worker import workspace
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

    cfg.compilation_config.static_forward_context.clear()
    workspace._manager = None
    workspace.init_workspace_manager(torch.device("meta"), 1, 1)
    with set_current_vllm_config(cfg):
        with set_default_torch_dtype(cfg.model_config.dtype), torch.device("meta"), fake_cuda.ToMeta():
            model = initialize_model(cfg)
        current_platform.update_block_size_for_backend(cfg)  # as a worker does after load_model
        specs = get_kv_cache_spec(cfg)
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
    n_bytes = sum(t.numel() * t.element_size() for t in tensors.values())
    del model
    gc.collect()
    return n_bytes, specs


def backends_of(cfg) -> list:
    """The attention backends of the layers, each once, in layer order."""
    from vllm.config.vllm import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    layers = get_layers_from_vllm_config(cfg, AttentionLayerBase).values()
    return list(dict.fromkeys(layer.get_attn_backend() for layer in layers))


def lay_out(cfg, specs: list[dict], backends: list, available_bytes: int):
    """vLLM's own planner on the specs of all pipeline ranks."""
    from vllm.config import set_current_vllm_config
    from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
    from vllm.v1.core.kv_cache_utils import get_kv_cache_configs
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

    register_all_kvcache_specs(cfg)
    layouts = [[x.name for x in get_supported_kv_cache_layouts(backends)]] * len(specs)
    with set_current_vllm_config(cfg):
        layout = resolve_kv_cache_layout(cfg, layouts, [s for rank in specs for s in rank.values()])
    return layout, get_kv_cache_configs(cfg, specs, [available_bytes] * len(specs))


def group_facts(group, cfg) -> dict:
    """One KV cache group as vLLM sizes it."""
    spec = group.kv_cache_spec
    needed = spec.max_memory_usage_bytes(cfg)
    return {
        "n_layers": len(group.layer_names),
        "kind": type(spec).__name__,
        "block": spec.block_size,
        "page": spec.page_size_bytes,
        "blocks_per_max_len_req": -(-needed // spec.page_size_bytes),
    }


def build_ranks(case: dict, model: str, cuda: bool):
    """Every pipeline rank's model, each with a config of its own as in its own process.

    Returns the engine's config (the worker's where both are one process), weights and specs per rank, and backends.
    """
    weights, specs, backends = [], [], []
    for pp_rank in range(case["pp"]):
        cfg = engine_config(case, model)
        if cuda:
            from vllm.config import CompilationMode

            cfg.compilation_config.mode = CompilationMode.NONE  # no torch.compile around a meta model
        set_rank(case, pp_rank)
        n_bytes, rank_specs = build(cfg)
        weights.append(n_bytes)
        specs.append(rank_specs)
        backends += [b for b in backends_of(cfg) if b not in backends]
    worker_block_size = cfg.cache_config.block_size
    if case["tp"] * case["pp"] > 1:
        cfg = engine_config(case, model)
    return cfg, worker_block_size, weights, specs, backends


def ask(case: dict, model: str, cuda: bool) -> dict:
    """vLLM's answer for one case."""
    from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config, get_kv_cache_capacity

    cfg, worker_block_size, weights, specs, backends = build_ranks(case, model, cuda)
    facts = {
        "architecture": cfg.model_config.architecture,
        "max_model_len": cfg.model_config.max_model_len,
        "max_num_seqs": cfg.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": cfg.scheduler_config.max_num_batched_tokens,
        "max_in_flight_tokens": cfg.max_in_flight_tokens,
        "prefix_caching": cfg.cache_config.enable_prefix_caching,
        "dtype": str(cfg.model_config.dtype).removeprefix("torch."),
        "cache_dtype": cfg.cache_config.cache_dtype,
        "backends": [b.get_name() for b in backends],
        "weight_gib": [round(n / GIB, 3) for n in weights],
        "specs": [spec_facts(rank) for rank in specs],
    }
    try:
        layout, configs = lay_out(cfg, specs, backends, int(case["kv_gib"] * GIB))
    except ValueError as e:
        return {"error": str(e), **figures(str(e)), **facts}
    scheduler = generate_scheduler_kv_cache_config(configs)
    cfg.cache_config.num_gpu_blocks = scheduler.num_blocks
    groups = scheduler.kv_cache_groups
    tokens, concurrency = get_kv_cache_capacity(cfg, scheduler) if groups else (0, 0.0)
    return {
        "groups": [group_facts(g, cfg) for g in groups],
        "block_size": worker_block_size,
        "reported_block_size": reported_block_size(groups),
        "layout": layout.name,
        "num_gpu_blocks": scheduler.num_blocks,
        "bytes_per_block": [
            sum({t.size // c.num_blocks for t in c.kv_cache_tensors}) if c.kv_cache_tensors else 0 for c in configs
        ],
        "kv_cache_size_tokens": tokens,
        "max_concurrency": round(concurrency, 3),
        **facts,
    }


def reported_block_size(groups: list) -> int | None:
    """What vllm:cache_config_info shows: the smallest of the groups that prefix caching works on (engine/core.py)."""
    specs = [g.kv_cache_spec for g in groups]
    return min((s.block_size for s in [s for s in specs if s.prefix_cacheable] or specs), default=None)


def spec_facts(specs: dict) -> list[dict]:
    """The layers' specs as the model registered them: each distinct one, how many layers, and the first's name."""
    facts: dict[str, dict] = {}
    for name, spec in specs.items():
        fields = {k: getattr(spec, k, None) for k in SPEC_FIELDS}
        if hasattr(spec, "dtypes"):
            fields["dtypes"] = [str(d).removeprefix("torch.") for d in spec.dtypes]
        kept = {k: v for k, v in fields.items() if v not in (None, 0, (), False)}
        fact = {"kind": type(spec).__name__, **kept, "page": spec.page_size_bytes}
        seen = facts.setdefault(json.dumps(fact), {**fact, "n_layers": 0, "first": name})
        seen["n_layers"] += 1
    return list(facts.values())


def figures(message: str) -> dict:
    """The two figures in vLLM's refusal for want of memory, where it has them."""
    needed = re.search(r"\(([\d.]+) GiB KV cache is needed", message)
    longest = re.search(r"estimated maximum model length is (\d+)", message)
    return {
        **({"needed_kv_gib": float(needed[1])} if needed else {}),
        **({"estimated_max_model_len": int(longest[1])} if longest else {}),
    }


def answer(line: dict, cuda: bool) -> dict:
    """The answer to one line; vLLM's refusals are answers too."""
    case = {**DEFAULTS, **line["case"]}
    fake_cuda.CARD.major, fake_cuda.CARD.minor = map(int, str(case["cap"]).split("."))
    fake_cuda.CARD.name = case.get("gpu_name", fake_cuda.Card.name)
    fake_cuda.CARD.total_bytes = int(case.get("gpu_gib", 79.1) * GIB)
    fake_cuda.CARD.count = max(8, case["tp"] * case["pp"])
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return ask(case, model_dir(line, scratch), cuda)
        except Exception as e:  # noqa: BLE001 - whatever vLLM raises is its answer
            if os.environ.get("ORACLE_DEBUG"):
                import traceback

                traceback.print_exc()
            return {"refused": f"{type(e).__name__}: {str(e)[:600]}"}


def in_child(line: dict, cuda: bool, timeout_s: int) -> dict:
    """The answer from a forked child, so that no case sees what another left behind."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        signal.alarm(timeout_s)
        if not os.environ.get("ORACLE_DEBUG"):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.dup2(2, 1)
        with os.fdopen(writer, "w") as out:
            json.dump(answer(line, cuda), out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else {"refused": "no answer (timed out or died)"}


def main() -> None:
    """Answer every line of the batch, in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", required=True, type=Path)
    parser.add_argument("--platform", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--timeout", type=int, default=120, help="seconds a case may take")
    options = parser.parse_args()
    prepare(options.platform)
    with options.batch.open() as lines:
        for text in lines:
            line = json.loads(text)
            line["answer"] = in_child(line, options.platform == "cuda", options.timeout)
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
