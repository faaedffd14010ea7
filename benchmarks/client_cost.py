"""CPU of the streaming client for each streamed token, beside other load tools on the same local server in one run.

    python benchmarks/client_cost.py --vllm PYTHON --guidellm COMMAND --tokenizer DIR --uvloop DIR

The server is the fake of the tests, on the last core; clients run on the first. A tool's cost is the CPU time of all
its processes while it sends, its start and imports left out: measured from within where it is called from Python, else
as the difference of a long and a short run. Then: how many streams of 20 tokens/s one core holds with 99 % of their
stamps less than 10 ms late, by the times the server wrote into its events.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROMPT, OUTPUT, STREAMS, REQUESTS = 128, 200, 64, 256
STEP_S = 0.02  # 64 streams at 50 tokens/s
PACE_S = 0.05  # 20 tokens/s
LATE_S = 0.010
MODEL = "fake"
# Server and lag measurement ask for their turn as the client does; on a busy machine they would measure that.
_PROMPT = 'echo -10 > /proc/self/autogroup; renice -n -10 -p $$ > /dev/null; exec "$@"'
PROMPTLY = ["sh", "-c", _PROMPT, "sh"] if os.geteuid() == 0 else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", metavar="PYTHON", help="a python that has vLLM, for its serve benchmark")
    parser.add_argument("--guidellm", metavar="COMMAND", help="a guidellm command")
    parser.add_argument("--tokenizer", metavar="DIR", help="a tokenizer on disk, which guidellm needs")
    parser.add_argument("--uvloop", metavar="DIR", help="where uvloop lies, if this python has none")
    parser.add_argument("--streams", type=int, nargs="*", default=[250, 500, 1000, 1500])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--as", dest="role", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.uvloop:
        sys.path.append(options.uvloop)
    if options.role is not None:
        print(json.dumps(ROLES[options.role](options)))
        return
    sys.path.insert(0, str(ROOT))
    compare(options)
    capacity(options)


# The tools, one after another


def compare(options: argparse.Namespace) -> None:
    """The first table: the median of the rounds."""
    names = ["kvadvise, asyncio"]
    if importlib.util.find_spec("uvloop") is not None:
        names.append("kvadvise, uvloop")
    if options.vllm:
        names += ["vllm bench serve", "vllm bench serve, uvloop"]
    if options.guidellm:
        names.append("guidellm")
    costs: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            costs[name].append(cost_of(name, options))
    best = min(sorted(costs[n])[len(costs[n]) // 2] for n in names if n.startswith("kvadvise, asyncio"))
    print(f"\n{STREAMS} streams at {1 / STEP_S:.0f} tokens/s, {REQUESTS} requests of {PROMPT} + {OUTPUT} tokens\n")
    print("| client | us CPU per token (all rounds) | times kvadvise on asyncio |\n|---|---|---|")
    for name in names:
        median = sorted(costs[name])[len(costs[name]) // 2]
        rounds = ", ".join(f"{c:.1f}" for c in costs[name])
        print(f"| {name} | {median:.1f} ({rounds}) | {median / best:.1f} |", flush=True)


def cost_of(name: str, options: argparse.Namespace) -> float:
    """Microseconds of CPU for a token."""
    with server(STEP_S) as (url, _):
        if name == "guidellm":
            with tempfile.TemporaryDirectory() as folder:
                most, least = (guidellm(options, url, count, folder) for count in (REQUESTS, STREAMS))
            return (most[0] - least[0]) / (most[1] - least[1]) * 1e6
        role = "vllm" if name.startswith("vllm") else "ours"
        python = options.vllm if role == "vllm" else sys.executable
        loop = "-uvloop" if name.endswith("uvloop") else ""
        found = child(python, options, role + loop, url, REQUESTS)
    if found["tokens"] != REQUESTS * OUTPUT:
        raise SystemExit(f"{name}: {found}")
    return float(found["cpu_s"] / found["tokens"] * 1e6)


def child(python: str, options: argparse.Namespace, role: str, url: str, count: int) -> dict[str, Any]:
    """A role of this file in a process on the first core."""
    command = [python, __file__, "--as", role, "--url", url, "--count", str(count)]
    if options.uvloop and role.endswith("-uvloop") and role != "vllm-uvloop":
        command += ["--uvloop", options.uvloop]
    done = subprocess.run(
        ["taskset", "-c", "0", *command], capture_output=True, text=True, check=False, start_new_session=True
    )
    if done.returncode != 0:
        raise SystemExit(f"{role} ended with {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def guidellm(options: argparse.Namespace, url: str, count: int, folder: str) -> tuple[float, int]:
    """CPU seconds of all its processes, and tokens."""
    command = [options.guidellm, "run", "--disable-console", "--output", f"kind=json,path={folder}/report.json"]
    command += ["--backend", f"kind=openai_http,target={url},model={MODEL},request_format=/v1/completions"]
    command += ["--profile", f"kind=concurrent,streams={STREAMS}", "--constraint", f"kind=max_requests,count={count}"]
    command += ["--tokenizer", f"kind=huggingface_auto,model={options.tokenizer}"]
    command += ["--data", f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={OUTPUT}"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    before = sum(os.times()[2:4])
    done = subprocess.run(
        ["taskset", "-c", "0", *command], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"guidellm ended with {done.returncode}: {done.stderr[-2000:]}{done.stdout[-2000:]}")
    return sum(os.times()[2:4]) - before, count * OUTPUT


@contextmanager
def server(step_s: float, *more: str) -> Iterator[tuple[str, int]]:
    """The fake server on the last core: its URL and its process."""
    last = str(max(os.sched_getaffinity(0)))
    command = ["taskset", "-c", last, sys.executable, "-m", "tests.verify.fake_vllm", "--step-s", str(step_s)]
    command += ["--max-num-seqs", "8000", "--num-blocks", "400000", "--max-num-batched-tokens", "10000000"]
    command += ["--prefill-s-per-token", "0", *more]
    path = os.pathsep.join(p for p in sys.path if p)
    with subprocess.Popen(
        [*PROMPTLY, *command],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    ) as process:
        try:
            if process.stdout is None:
                raise SystemExit("no server")
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.kill()


# Roles, each in a process of its own


def as_ours(options: argparse.Namespace) -> dict[str, Any]:
    """The client as a run uses it: a parent that takes rows, one process that sends."""
    sys.path.insert(0, str(ROOT))
    if options.role == "ours":
        sys.modules["uvloop"] = None  # type: ignore[assignment]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([options.uvloop] if options.uvloop else [])])
    pool = importlib.import_module("verify.client.pool")
    types = importlib.import_module("verify.client.types")
    load = importlib.import_module("verify.load.types")
    requests = tuple(
        load.PlannedRequest(
            index=i, phase="peak", prompt_tokens=PROMPT, output_tokens=OUTPUT, parts=(load.Part(f"own-{i}", PROMPT),)
        )
        for i in range(options.count)
    )
    phase = load.Phase(name="peak", mode="closed", requests=requests, concurrency=STREAMS)

    async def run() -> dict[str, Any]:
        target = types.Target(url=options.url, model=MODEL, vocab_size=1024, salt="bench")
        client = pool.Client(target, seed=1, version="bench")
        rows: list[Any] = []
        await client.start()
        before = time.process_time() + sum(map(on_cpu_s, client.pids))
        now = time.perf_counter()
        facts = await client.run(phase, began=now, zero=now, on_rows=rows.extend, stop=asyncio.Event())
        cpu_s = time.process_time() + sum(map(on_cpu_s, client.pids)) - before
        await client.close()
        tokens = sum(row.streamed_tokens for row in rows if row.outcome == "ok")
        return {"cpu_s": cpu_s, "tokens": tokens, "loop": facts.loop}

    return asyncio.run(run())


def on_cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def as_vllm(options: argparse.Namespace) -> dict[str, Any]:
    """vLLM's serve benchmark, called as its command calls it."""
    serve = importlib.import_module("vllm.benchmarks.serve")
    datasets = importlib.import_module("vllm.benchmarks.datasets")
    requests = [
        datasets.SampleRequest(
            prompt=[3 + (i * 31 + j) % 1000 for j in range(PROMPT)], prompt_len=PROMPT, expected_output_len=OUTPUT
        )
        for i in range(options.count)
    ]

    async def run() -> dict[str, Any]:
        before = time.process_time()
        result = await serve.benchmark(
            task_type=serve.TaskType.GENERATION,
            endpoint_type="openai",
            api_url=f"{options.url}/v1/completions",
            base_url=options.url,
            model_id=MODEL,
            model_name=MODEL,
            tokenizer=None,
            input_requests=requests,
            logprobs=None,
            request_rate=float("inf"),
            burstiness=1.0,
            disable_tqdm=True,
            num_warmups=0,
            profile=False,
            selected_percentile_metrics=["ttft", "tpot", "itl"],
            selected_percentiles=[99.0],
            ignore_eos=True,
            goodput_config_dict={},
            max_concurrency=STREAMS,
            lora_modules=None,
            extra_headers=None,
            extra_body=None,
            ready_check_timeout_sec=0,
        )
        return {"cpu_s": time.process_time() - before, "tokens": sum(result["output_lens"])}

    if options.role == "vllm-uvloop":
        return dict(importlib.import_module("uvloop").run(run()))
    return asyncio.run(run())


def as_lag(options: argparse.Namespace) -> dict[str, Any]:
    """So many streams from this process; how late their stamps were."""
    sys.path.insert(0, str(ROOT))
    exchange = importlib.import_module("verify.client.exchange")
    lags = array("d")
    plain = importlib.import_module("verify.client.tally").Tally

    class Timed(plain):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def event(self, data: bytes, at: float) -> None:
            start = data.rfind(b'"at":')
            if start > 0:
                lags.append(at - float(data[start + 5 : -1]))
            plain.event(self, data, at)

    exchange.Tally = Timed  # type: ignore[attr-defined]
    if options.role == "lag":
        sys.modules["uvloop"] = None  # type: ignore[assignment]
    worker = importlib.import_module("verify.client.worker")
    importlib.import_module("verify.client.priority").ask_for_promptness()
    loop, name = worker.new_loop()
    finished, tokens = loop.run_until_complete(_send(options.url, options.count))
    late = sorted(lags)
    return {
        "loop": name,
        "tokens": tokens,
        "tokens_per_s": tokens / finished.wall_s,
        "core": finished.cpu_s / finished.wall_s,
        "p50_s": late[len(late) // 2],
        "p99_s": late[int(len(late) * 0.99)],
        "loop_lag_p99_s": finished.lag_p99_s,
    }


async def _send(url: str, count: int) -> tuple[Any, int]:
    sender = importlib.import_module("verify.client.sender")
    messages = importlib.import_module("verify.client.messages")
    types = importlib.import_module("verify.client.types")
    load = importlib.import_module("verify.load.types")
    address = importlib.import_module("verify.client.address")
    bodies = importlib.import_module("verify.client.bodies")
    target = types.Target(url=url, model=MODEL, vocab_size=1024, salt="bench")
    rows: list[Any] = []
    one = sender.Sender(
        target, address.address_of(target), version="bench", process=0,
        prompt_ids=lambda request: [3 + (request.index + j) % 1000 for j in range(PROMPT)], on_rows=rows.extend,
    )  # fmt: skip
    # arrivals over one second: a thousand requests in one instant are another question
    requests = tuple(
        load.PlannedRequest(
            index=i, phase="tail", prompt_tokens=PROMPT, output_tokens=300, parts=(), scheduled_s=i / count
        )
        for i in range(count)
    )
    one.prepare(
        messages.Prepare(
            name="tail", mode="open", requests=requests, places=0, fields=bodies.Fields(), keeps_alive=True
        )
    )
    await asyncio.sleep(0.5)
    now = time.perf_counter()
    finished = await one.play(began=now + 0.1, zero=now)
    one.connections.close()
    if {row.outcome for row in rows} != {"ok"}:
        raise SystemExit(f"not all was well: { {row.outcome for row in rows} }")
    return finished, sum(row.streamed_tokens for row in rows)


def capacity(options: argparse.Namespace) -> None:
    """The second table."""
    roles = ["lag"] + (["lag-uvloop"] if importlib.util.find_spec("uvloop") is not None else [])
    print("\nstreams at 20 tokens/s from one process on one core; all of a step's tokens are written at once\n")
    print("| streams | loop | tokens/s | core used | stamps late p50 | p99 | server's core |")
    print("|---|---|---|---|---|---|---|")
    for count in options.streams:
        for role in roles:
            with server(PACE_S, "--stamps") as (url, pid):
                before, wall = on_cpu_s(pid), time.perf_counter()
                found = child(sys.executable, options, role, url, count)
                busy = (on_cpu_s(pid) - before) / (time.perf_counter() - wall)
            late = [f"{found[k] * 1e3:.1f} ms" for k in ("p50_s", "p99_s")]
            held = " (held)" if found["p99_s"] < LATE_S else ""
            print(
                f"| {count} | {found['loop']} | {found['tokens_per_s']:,.0f} | {found['core']:.2f} | {late[0]} "
                f"| {late[1]}{held} | {busy:.2f} |",
                flush=True,
            )


ROLES = {
    "ours": as_ours,
    "ours-uvloop": as_ours,
    "vllm": as_vllm,
    "vllm-uvloop": as_vllm,
    "lag": as_lag,
    "lag-uvloop": as_lag,
}

if __name__ == "__main__":
    main()
