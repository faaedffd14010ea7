"""How many scheduler steps a second: vLLM's own scheduler and the simulation, on the same requests.

1,000 requests of 1,000 + 300 tokens at 256 running, as `ENGINE_PYTHON` (or KVADVISE_ENGINE) takes them and as
kvadvise does; and a long conversation load on the pool of Llama-3.1-8B on an H100, simulated only.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from advisor.simulation.request import Part, SimRequest
from advisor.simulation.rules import GroupRule, Rules
from advisor.simulation.simulate import simulate
from tests.advisor.simulation.cases import requests_of, rules_of

ROOT = Path(__file__).resolve().parents[1]
ORACLE = ROOT / "tests" / "engine" / "scheduler_oracle.py"
LLAMA_8B_H100_BLOCKS = 27_900  # of 16 tokens, 2 MiB each: what is left of 79 GiB at 0.92
STEPS_PER_S = 40  # of the conversation load: arrivals by step, as if a step took 25 ms


def load(num_blocks: int, *, caching: bool) -> dict[str, Any]:
    """The 1,000 requests, all there at the start."""
    rows = [
        {"arrival_step": 0, "prompt": [[f"own {i}", 1000]], "output_tokens": 300, "output": f"answer {i}"}
        for i in range(1000)
    ]
    return {
        "groups": [{"kind": "full", "block_size": 16}],
        "num_blocks": num_blocks,
        "max_model_len": 4096,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "prefix_caching": caching,
        "requests": rows,
    }


def ask_vllm(python: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """vLLM's totals and the seconds its scheduler took."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "cases.jsonl"
        path.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
        command = [python, str(ORACLE), str(ROOT / "tests/data/tiny-llama"), "--cases", str(path), "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def conversation(path: Path | None) -> list[SimRequest]:
    """Requests of a trace with timestamps and token counts (Azure's columns), or made-up ones of its size and shape."""
    if path is not None:
        with path.open(encoding="utf-8") as file:
            rows = [(r["TIMESTAMP"], int(r["ContextTokens"]), int(r["GeneratedTokens"])) for r in csv.DictReader(file)]
        seconds = [60 * float(t.split(":")[1]) + float(t.split(":")[2]) + 3600 * float(t[11:13]) for t, _, _ in rows]
        first = seconds[0]
        table = [(int((s - first) * STEPS_PER_S), p, o) for s, (_, p, o) in zip(seconds, rows, strict=True)]
    else:
        rng = Random(1)  # noqa: S311 - no secret
        table = []
        for i in range(19_366):
            prompt, output = int(rng.lognormvariate(6.6, 0.9)) + 1, int(rng.lognormvariate(5.0, 0.8)) + 1
            table.append((int(i * 3600 / 19_366 * STEPS_PER_S), min(prompt, 7000), min(output, 1000)))
    return [
        SimRequest(arrival_step=step, prompt=(Part(f"own {i}", max(p, 1)),), output_tokens=max(o, 1))
        for i, (step, p, o) in enumerate(table)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", default=os.environ.get("KVADVISE_ENGINE"), help="python that has vLLM")
    parser.add_argument("--trace", type=Path, help="Azure LLM inference trace (csv)")
    options = parser.parse_args()
    names = {"roomy": (20_001, True), "tight": (8_001, True), "tight, no prefix cache": (8_001, False)}
    cases = [load(blocks, caching=caching) for blocks, caching in names.values()]
    theirs = ask_vllm(options.engine, cases) if options.engine else [None] * len(cases)
    title = "1,000 x (1,000 + 300), 256 running"
    print(f"{title:36}{'steps':>8}{'preempted':>11}{'vLLM':>12}{'kvadvise':>13}{'ratio':>8}")
    for name, case, answer in zip(names, cases, theirs, strict=True):
        requests, rules = requests_of(case), rules_of(case)
        start = time.process_time()
        result = simulate(requests, rules)
        rate = result.steps / (time.process_time() - start)
        row = f"{name:36}{result.steps:>8}{result.preemptions:>11}"
        if answer is None:
            print(f"{row}{'not asked':>12}{rate:>9.0f} /s")
            continue
        if (answer["steps"], answer["preemptions"]) != (result.steps, result.preemptions):
            sys.exit(f"{name}: vLLM took {answer['steps']} steps with {answer['preemptions']} preemptions")
        vllm = answer["steps"] / answer["seconds"]
        print(f"{row}{vllm:>9.0f} /s{rate:>10.0f} /s{rate / vllm:>7.1f}x")
    requests = conversation(options.trace)
    rules = Rules(
        max_model_len=131_072,
        max_num_seqs=1024,
        max_num_batched_tokens=8192,
        num_blocks=LLAMA_8B_H100_BLOCKS,
        groups=(GroupRule(kind="full", block_size=16),),
        async_scheduling=True,
    )
    start = time.process_time()
    result = simulate(requests, rules)
    seconds = time.process_time() - start
    print(
        f"{len(requests):,} conversation requests: {result.steps:,} steps in {seconds:.1f} s, peak {result.peak_blocks}"
    )


if __name__ == "__main__":
    main()
