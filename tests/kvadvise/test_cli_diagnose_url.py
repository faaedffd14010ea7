"""`kvadvise diagnose --url`: every symptom as a server shows it, what is not vLLM, and a key that is never shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.kvadvise.processes import Shell
from tests.launch.logs import DIRECTORY
from tests.verify.fake_vllm import serving

QUICK = ("--interval", "0.6")
CALM: dict[str, float] = {
    "num_requests_running": 4, "num_requests_waiting": 0, "kv_cache_usage_perc": 0.3, "num_preemptions_total": 0,
    "prompt_tokens_total": 100, "generation_tokens_total": 100, "iteration_tokens_total_count": 10,
    "request_success_total": 5, "prefix_cache_queries_total": 1000, "prefix_cache_hits_total": 0,
    "inter_token_latency_seconds_sum": 1, "inter_token_latency_seconds_count": 100,
}  # fmt: skip
STEADY: dict[str, float] = {"generation_tokens_total": 100, "iteration_tokens_total_count": 10}


class Scripted:
    """A server whose answers are made from how often its metrics were read before."""

    def __init__(self, figures: Callable[[int], dict[str, float]], **answers: tuple[int, bytes]) -> None:
        self.figures = figures
        self.answers = answers
        self.reads = 0
        self.headers: list[str] = []

    def answer(self, path: str) -> tuple[int, bytes]:
        name = path.strip("/").replace("/", "_")
        if name == "metrics" and "metrics" not in self.answers:
            figures = self.figures(self.reads)
            self.reads += 1
            lines = [f'vllm:{name}{{engine="0"}} {value}' for name, value in figures.items()]
            lines.append(
                'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="100",cache_dtype="fp8"} 1.0'
            )
            return 200, "\n".join([*lines, ""]).encode()
        models = b'{"data": [{"id": "m", "max_model_len": 4096, "owned_by": "vllm"}]}'
        usual = {"health": (200, b""), "version": (200, b'{"version": "0.32.0"}'), "v1_models": (200, models)}
        return self.answers.get(name, usual.get(name, (404, b"")))


@contextmanager
def listening(scripted: Scripted) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scripted.headers.append(self.headers.get("Authorization", ""))
            status, body = scripted.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def growing(**rates: float) -> Callable[[int], dict[str, float]]:
    """Calm, with tokens coming, and these figures growing by so much a reading."""
    return lambda n: CALM | {name: CALM.get(name, 0) + n * rate for name, rate in (STEADY | rates).items()}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    for name in ("KVADVISE_API_KEY", "VLLM_API_KEY"):
        made.env.pop(name, None)
    return made


def asked(shell: Shell, scripted: Scripted, *options: str) -> tuple[int, dict[str, Any]]:
    with listening(scripted) as url:
        done = shell.run("diagnose", "--url", url, *QUICK, "--json", *options)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}


@pytest.mark.parametrize(
    ("figures", "options", "code", "exit_code"),
    [
        (growing(num_preemptions_total=2), (), "preemptions", 0),
        (growing(num_requests_waiting=10, kv_cache_usage_perc=0.2), (), "queue-unbounded", 1),
        (lambda n: growing()(n) | {"num_requests_waiting": 5}, (), "waiting-low-usage", 0),
        (growing(), ("--concurrency", "64"), "client-limited", 0),
        (growing(), ("--throughput", "8=900", "--throughput", "32=910"), "memory-free-throughput-flat", 0),
        (
            growing(inter_token_latency_seconds_sum=10, inter_token_latency_seconds_count=100),
            ("--alone-tpot-s", "0.01"), "alone-fast-together-slow", 0,
        ),
        (growing(), ("--symptom", "quality-long-context"), "quality-long-context", 0),
        (
            lambda n: CALM | {
                "kv_cache_usage_perc": 0.99, "num_requests_waiting": 9,
                "generation_tokens_total": 100 + 1000 * n - 100 * n * n,
            },
            (), "kv-thrash", 1,
        ),
        (lambda n: growing()(n) | {"num_preemptions_total": 5 - n}, (), "server-restarted", 1),
        (
            lambda n: growing()(n) | {"admission_rejections_total": 4 * n}, (), "admission-rejected", 0,
        ),
    ],
)  # fmt: skip
def test_a_symptom_is_named(
    shell: Shell, figures: Callable[[int], dict[str, float]], options: tuple[str, ...], code: str, exit_code: int
) -> None:
    status, answer = asked(shell, Scripted(figures), *options)
    assert code in [finding["code"] for finding in answer["findings"]]
    assert status == exit_code
    [finding] = [one for one in answer["findings"] if one["code"] == code]
    assert finding["seen_in"] == "server"
    assert finding["message"]
    assert finding["remedy"]
    assert finding["evidence"]
    assert code not in answer["not_seen"]


def test_a_server_that_is_well(shell: Shell) -> None:
    status, answer = asked(shell, Scripted(growing()))
    assert (status, answer["findings"]) == (0, [])
    assert answer["server"]["models"] == [{"id": "m", "max_model_len": 4096, "owned_by": "vllm"}]
    assert (answer["server"]["readings"], answer["server"]["was_idle"]) == (4, False)
    assert "preemptions" in answer["not_seen"]
    open_ones = {one["code"] for one in answer["not_judged"]}
    assert {"client-limited", "alone-fast-together-slow", "quality-long-context"} <= open_ones
    assert not open_ones & set(answer["not_seen"])


def test_a_standing_engine_is_not_called_well(shell: Shell) -> None:
    _, answer = asked(shell, Scripted(lambda _: CALM))
    [open_one] = [one for one in answer["not_judged"] if one["code"] == "engine-frozen"]
    assert "60 s between the readings" in open_one["missing"]


def test_an_engine_that_is_dead(shell: Shell) -> None:
    status, answer = asked(shell, Scripted(growing(), health=(503, b"")))
    assert (status, answer["findings"][0]["code"]) == (1, "engine-died")


def test_the_real_shapes_of_an_idle_server(shell: Shell) -> None:
    with serving() as fake:
        done = shell.run("diagnose", "--url", f"{fake.url}/v1/", *QUICK)
    assert done.returncode == 0
    assert "vLLM 0.32.0, fake, /health 200" in done.stdout
    assert "it was idle all the while" in done.stdout
    assert "looked for and not there: " in done.stdout
    assert "Nothing is wrong that these readings show." in done.stdout


def test_log_and_server_together(shell: Shell) -> None:
    log = str(DIRECTORY / "p57-v0-preempted.log")
    status, answer = asked(shell, Scripted(growing(num_preemptions_total=2)), "--log", log)
    assert status == 0
    assert [(f["code"], f["seen_in"]) for f in answer["findings"]] == [
        ("preemptions", "log"),
        ("preemptions", "server"),
    ]
    assert answer["log"] == log


def test_a_profile_says_what_the_load_declares(shell: Shell) -> None:
    shell.write(
        "w.yaml",
        "model: Qwen/Qwen2.5-7B-Instruct\ngpu: L40S\nworkload: {prompt_tokens: {p50: 1000, p95: 2000}, output_tokens: "
        "{p95: 100}, concurrency: 8, shared_prefix_tokens: 500}\n",
    )
    _, answer = asked(shell, Scripted(growing(prefix_cache_queries_total=1000)), "--profile", "w.yaml")
    assert "prefix-cache-cold" in [finding["code"] for finding in answer["findings"]]


def test_nobody_there(shell: Shell) -> None:
    with listening(Scripted(growing())) as url:
        pass
    done = shell.run("diagnose", "--url", url, *QUICK, "--json")
    assert (done.returncode, done.stdout) == (69, "")
    assert f"error: {url}: cannot be reached" in done.stderr


@pytest.mark.parametrize(
    "answers",
    [
        {"metrics": (404, b""), "version": (404, b""), "v1_models": (404, b"")},
        {"metrics": (200, b"nginx_up 1.0\n"), "version": (404, b""), "v1_models": (200, b'{"data": [{"id": "gpt"}]}')},
        {"metrics": (200, b"<html>"), "version": (200, b"<html>"), "v1_models": (200, b"[]")},
    ],
)
def test_a_server_that_is_not_vllm_is_said(shell: Shell, answers: dict[str, tuple[int, bytes]]) -> None:
    with listening(Scripted(growing(), **answers)) as url:
        done = shell.run("diagnose", "--url", url, *QUICK)
    assert done.returncode == 69
    assert "answers, and is not vLLM" in done.stderr


def test_vllm_without_its_metrics_cannot_be_judged(shell: Shell) -> None:
    status, answer = asked(shell, Scripted(growing(), metrics=(404, b"")))
    assert status == 75
    assert answer["not_seen"] == []
    assert {"preemptions", "engine-frozen"} <= {one["code"] for one in answer["not_judged"]}


def test_a_server_that_goes_away_meanwhile(shell: Shell) -> None:
    scripted = Scripted(growing())
    usual = scripted.answer
    scripted.answer = lambda path: (  # type: ignore[method-assign]
        (500, b"") if path == "/metrics" and scripted.reads > 1 else usual(path)
    )
    with listening(scripted) as url:
        done = shell.run("diagnose", "--url", url, *QUICK)
    assert done.returncode == 69
    assert "no longer gives its metrics" in done.stderr


def test_the_key_comes_from_the_environment_and_is_shown_nowhere(shell: Shell) -> None:
    shell.env["VLLM_API_KEY"] = "sk-very-secret"
    scripted = Scripted(growing())
    with listening(scripted) as url:
        done = shell.run("diagnose", "--url", url, *QUICK)
        named = shell.run("diagnose", "--url", url.replace("http://", "http://someone:hidden@"), *QUICK)
    wrong = shell.run("diagnose", "--url", "http://someone:hidden@127.0.0.1:1", *QUICK)
    assert (done.returncode, named.returncode) == (0, 0)
    assert scripted.headers[0] == "Bearer sk-very-secret"
    assert wrong.returncode == 69
    for text in (done.stdout, done.stderr, named.stdout, named.stderr, wrong.stdout, wrong.stderr):
        assert "sk-very-secret" not in text
        assert "hidden" not in text


def test_a_refused_key_is_said(shell: Shell) -> None:
    with serving(api_key="right") as fake:
        without = shell.run("diagnose", "--url", fake.url, *QUICK)
        shell.env["KVADVISE_API_KEY"] = "right"
        shown = shell.run("diagnose", "--url", fake.url, *QUICK)
    assert "/v1/models answers 401: set KVADVISE_API_KEY or VLLM_API_KEY" in without.stdout
    assert "answers 401" not in shown.stdout
    assert "right" not in shown.stdout.replace("all right", "")
    status, answer = asked(shell, Scripted(growing(), metrics=(401, b""), version=(401, b""), v1_models=(401, b"")))
    assert status == 69
    assert "set KVADVISE_API_KEY" in answer["stderr"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "give a log, a server, or both"),
        (("--url", "ftp://x"), "'ftp://x' is no address"),
        (("--url", "http://"), "is no address"),
        (("--url", "http://a b"), "is no address"),
        (("--url", "http://x:99999"), "is no address"),
        (("--url", "http://x", "--throughput", "8"), "is no throughput"),
        (("--url", "http://x", "--exit-code", "1"), "--exit-code belongs to --log"),
        (("--url", "https://x", "--ca-file", "/nowhere.pem"), "cannot be read as certificates"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(shell: Shell, options: tuple[str, ...], says: str) -> None:
    done = shell.run("diagnose", *options)
    assert done.returncode == 2
    assert says in done.stderr
