# mypy: ignore-errors
"""Ask vLLM's own scheduler, with no model and no weights, what it does at every step of a load.

    ENGINE_PYTHON tests/engine/scheduler_oracle.py MODEL_DIR --cases cases.jsonl > answers.jsonl

One JSON object a line (see tests/advisor/simulation/cases.py for its keys); MODEL_DIR holds a config.json that vLLM
can read, and nothing of it but the dtype plays a part: the KV groups come from the case. What is real is vLLM's
Scheduler or AsyncScheduler with its block pool, prefix cache and queues; what is made up is the forward pass, which
gives one token to every request whose prompt is done. The answer holds one row a step. Reads vLLM's internals (0.32).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import deque
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.usage.usage_lib import UsageContext
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash, resolve_kv_cache_block_sizes
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager


class Tokens:
    """The tokens of a named piece of text: the same name always gives the same tokens."""

    def __init__(self):
        self._known: dict[str, tuple[random.Random, list[int]]] = {}

    def first(self, name: str, n: int) -> list[int]:
        rng, tokens = self._known.setdefault(name, (random.Random(name), []))  # noqa: S311 - no secret
        while len(tokens) < n:
            tokens.append(rng.randrange(10, 30_000))
        return tokens[:n]


def base_config(model: str):
    args = EngineArgs(model=model, skip_tokenizer_init=True, load_format="dummy", enforce_eager=True)
    return args.create_engine_config(UsageContext.OPENAI_API_SERVER)


def spec_of(group: dict):
    """vLLM's spec for one group; `twin` tells groups of one kind apart that do not share a spec."""
    size, twin = group["block_size"], group.get("twin", 0)
    shape = {"block_size": size, "num_kv_heads": 1, "head_size": 16 * (twin + 1), "dtype": torch.bfloat16}
    match group["kind"]:
        case "full":
            return FullAttentionSpec(**shape)
        case "latent":
            return MLAAttentionSpec(**shape)
        case "sliding":
            return SlidingWindowSpec(**shape, sliding_window=group["span_tokens"])
        case "chunked":
            return ChunkedLocalAttentionSpec(**shape, attention_chunk_size=group["span_tokens"])
        case "mamba":
            return MambaSpec(
                block_size=size,
                shapes=((twin + 1,),),
                dtypes=(torch.float32,),
                mamba_cache_mode="align" if group.get("aligned") else "none",
                num_prefill_checkpoint_blocks=int(group.get("checkpoint_alignment") is not None),
                prefill_checkpoint_alignment=group.get("checkpoint_alignment"),
            )
    raise ValueError(group["kind"])


def make_scheduler(cfg, case: dict):
    """vLLM's scheduler for one case, and the function that hashes blocks."""
    s, c = cfg.scheduler_config, cfg.cache_config
    cfg.model_config.max_model_len = case["max_model_len"]
    s.max_num_seqs = case["max_num_seqs"]
    s.max_num_batched_tokens = case["max_num_batched_tokens"]
    s.max_num_active_seqs = case.get("max_num_active_seqs")
    s.policy = case.get("policy", "fcfs")
    s.enable_chunked_prefill = case.get("chunked_prefill", True)
    s.long_prefill_token_threshold = case.get("long_prefill_token_threshold", 0)
    s.long_prefill_token_threshold_adaptive = case.get("long_prefill_token_threshold_adaptive", False)
    s.scheduler_reserve_full_isl = case.get("reserve_full_prompt", True)
    s.watermark = case.get("watermark_fraction", 0.0)
    s.async_scheduling = case.get("async_scheduling", False)
    c.num_gpu_blocks = case["num_blocks"]
    c.enable_prefix_caching = case.get("prefix_caching", True)
    c.block_size = min(g["block_size"] for g in case["groups"])
    c.mamba_cache_mode = "align" if any(g.get("aligned") for g in case["groups"]) else "none"
    groups = [KVCacheGroupSpec([f"layer.{i}"], spec_of(g)) for i, g in enumerate(case["groups"])]
    kv = KVCacheConfig(
        num_blocks=case["num_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=groups,
        prefix_cache_retention_interval=case.get("retention_interval_tokens", 0),
    )
    sizes = resolve_kv_cache_block_sizes(kv, cfg)
    made = (AsyncScheduler if s.async_scheduling else Scheduler)(
        vllm_config=cfg,
        kv_cache_config=kv,
        structured_output_manager=StructuredOutputManager(cfg),
        block_size=sizes[0],
        hash_block_size=sizes[1],
        log_stats=True,
    )
    hasher = None
    if c.enable_prefix_caching:
        function = get_hash_fn_by_name("sha256")
        init_none_hash(function)
        hasher = get_request_block_hasher(sizes[1], function)
    return made, hasher


class Run:
    """One case, driven to its end as EngineCore's batch queue does: with asynchronous scheduling one step ahead."""

    def __init__(self, cfg, case: dict):
        self.case = case
        self.scheduler, hasher = make_scheduler(cfg, case)
        self.depth = 2 if case.get("async_scheduling") else 1
        self.inflight: deque = deque()
        self.text = Tokens()
        self.requests, self.hits, self.queries = [], 0, 0
        self.seconds = 0.0
        for i, row in enumerate(case["requests"]):
            prompt = [t for name, n in row["prompt"] for t in self.text.first(name, n)]
            sampling = SamplingParams(max_tokens=row["output_tokens"], ignore_eos=True, temperature=0.0)
            request = Request(
                f"{i:06d}",
                prompt,
                sampling,
                None,
                block_hasher=hasher,
                arrival_time=float(row["arrival_step"]),
                priority=row.get("priority", 0),
            )
            self.requests.append(request)

    def output(self, scheduled) -> ModelRunnerOutput:
        """What a model would return: a token where the prompt is done."""
        ids, tokens = list(scheduled.num_scheduled_tokens), []
        for name in ids:
            request = self.scheduler.requests[name]
            if request.is_prefill_chunk:
                tokens.append([])
                continue
            at = request.num_output_tokens + max(request.num_output_placeholders - 1, 0)
            tokens.append([self.text.first(self.case["requests"][int(name)]["output"], at + 1)[at]])
        return ModelRunnerOutput(ids, {name: i for i, name in enumerate(ids)}, tokens)

    def settle(self) -> None:
        start = time.process_time()
        outputs = self.scheduler.update_from_output(*self.inflight.popleft())
        self.seconds += time.process_time() - start
        for core in outputs.values():
            if core.scheduler_stats is not None:
                stats = core.scheduler_stats.prefix_cache_stats
                self.hits += stats.hits + stats.preempted_hits
                self.queries += stats.queries + stats.preempted_queries

    def step(self, number: int, quiet: bool) -> tuple[int, list]:
        """Schedule once; returns how many tokens, and the row that tests compare."""
        s = self.scheduler
        start = time.process_time()
        scheduled = s.schedule()
        self.seconds += time.process_time() - start
        self.inflight.append((scheduled, self.output(scheduled)))
        row = []
        if not quiet:
            pool = s.kv_cache_manager.block_pool
            held = [
                [sum(not b.is_null for b in blocks) for blocks in s.kv_cache_manager.get_blocks(r.request_id).blocks]
                for r in s.running
            ]
            row = [
                number,
                [int(r.request_id) for r in s.running],
                [[int(name), n] for name, n in scheduled.num_scheduled_tokens.items()],
                held,
                pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
                sorted(int(name) for name in scheduled.preempted_req_ids),
                s.get_request_counts()[1],
            ]
        while len(self.inflight) >= self.depth or (self.inflight and not scheduled.total_num_scheduled_tokens):
            self.settle()
        return scheduled.total_num_scheduled_tokens, row

    def play(self, quiet: bool = False) -> dict:
        """Every step until all requests are done, or nothing can move any more."""
        s, case = self.scheduler, self.case
        arrivals: dict[int, list[int]] = {}
        aborts: dict[int, list[int]] = {}
        for i, row in enumerate(case["requests"]):
            arrivals.setdefault(row["arrival_step"], []).append(i)
            if row.get("abort_step") is not None:
                aborts.setdefault(row["abort_step"], []).append(i)
        rows, number, stuck, steps = [], 0, False, 0
        while arrivals or aborts or s.requests:
            for i in arrivals.pop(number, []):
                s.add_request(self.requests[i])
            for i in aborts.pop(number, []):
                s.finish_requests(self.requests[i].request_id, RequestStatus.FINISHED_ABORTED)
            if not s.requests:
                while self.inflight:  # of requests that have been aborted
                    self.settle()
                later = [*arrivals, *aborts]
                number = min(later) if later else number
                if not later:
                    break
                continue
            before = bool(self.inflight)
            tokens, row = self.step(number, quiet)
            steps += 1
            rows.append(row)
            if not tokens and not before and not arrivals and not aborts and s.requests:
                stuck = True
                break
            number += 1
        return {
            "rows": rows,
            "steps": steps,
            "stuck": stuck,
            "hit_tokens": self.hits,
            "query_tokens": self.queries,
            "preemptions": sum(r.num_preemptions for r in self.requests),
            "finished": [r.num_output_tokens for r in self.requests],
            "seconds": self.seconds,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="directory with a config.json")
    parser.add_argument("--cases", required=True, type=Path)
    parser.add_argument("--quiet", action="store_true", help="totals and seconds, no rows")
    options = parser.parse_args()
    cfg = base_config(options.model)
    with options.cases.open() as lines:
        for line in lines:
            answer = Run(cfg, json.loads(line)).play(options.quiet)
            sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
