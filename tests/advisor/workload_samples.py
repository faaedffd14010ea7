"""A good workload file, and bad ones: what is wrong in each, on which line, under which key, and what is right."""

from __future__ import annotations

from typing import NamedTuple

GOOD = """\
schema: kvadvise.workload/1
name: chat
description: |
  prompts up to 7k, answers up to 1k
origin: made up for the tests
model: {id: Qwen/Qwen2.5-7B-Instruct, revision: abc123, quantization: fp8, weights_gib_per_gpu: 7.5}
gpu: {name: H100 80GB, count: 2, memory_gib: 79.19, free_gib: 78.68, compute_capability: 9.0}
workload:
  prompt_tokens: {p50: 1200, p90: 5000, p95: 6500, p99: 7000, max: 7168}
  output_tokens: {p50: 250, p95: 900, max: 1024}
  concurrency: 32
  requests_per_s: 4
  shared_prefix_tokens: 1000
  chat_template_tokens: 64
  trace: traces/chat.csv
slo: {ttft_p50_s: 1, ttft_p95_s: 2.0, tpot_p95_s: 0.05, e2e_p99_s: 60}
policy:
  kv_cache_quantization: ask
  headroom: 0.8
engine:
  vllm_version: "0.32.0"
  max-model-len: 8192
  compilation_config: {mode: 3, cudagraph_capture_sizes: [1, 2, 4]}
gate:
  preemptions_max: 0
  kv_peak_max: 0.95
plan: {schema: kvadvise.plan/1, outcome: fits, kv: {num_blocks: 12345}}
"""
MINIMAL = """\
model: Qwen/Qwen2.5-7B-Instruct
gpu: RTX 4090
workload:
  prompt_tokens: {p95: 6500}
  output_tokens: {max: 1024}
  concurrency: 32
"""


class Bad(NamedTuple):
    """One wrong file. `line`, `key` and `tells` are those of one of its problems."""

    name: str
    text: str
    line: int
    key: str
    tells: tuple[str, ...]
    by_schema: bool = True  # whether a JSON Schema can see it, given what a YAML reader makes of the text
    alone: bool = True  # whether it is the only problem told


def edited(old: str, new: str, base: str = GOOD) -> str:
    """The good file with one thing changed."""
    if old not in base:
        raise ValueError(f"{old!r} is not in the good file")
    return base.replace(old, new, 1)


def _edit(
    name: str, old: str, new: str, line: int, key: str, *tells: str, schema: bool = True, alone: bool = True
) -> Bad:
    return Bad(name, edited(old, new), line, key, tells, schema, alone)


IN, OUT, W = "workload.prompt_tokens", "workload.output_tokens", "workload"

VALUES = [
    _edit("tokens-7k", "p99: 7000", "p99: 7k", 9, f"{IN}.p99", "7000", "7168", "whole number"),
    _edit("tokens-1.5", "p50: 1200", "p50: 1199.5", 9, f"{IN}.p50", "write 1200"),
    _edit("tokens-integral-float", "p50: 250", "p50: 250.0", 10, f"{OUT}.p50", "write 250", schema=False),
    _edit("tokens-quoted", "p50: 250", 'p50: "250"', 10, f"{OUT}.p50", 'the text "250"', "write 250"),
    _edit("tokens-thousands", "max: 7168", 'max: "7,168"', 9, f"{IN}.max", "write 7168"),
    _edit("tokens-with-unit", "max: 7168", "max: 7168 tokens", 9, f"{IN}.max", "write 7168"),
    _edit("tokens-words", "max: 7168", "max: many", 9, f"{IN}.max", 'the text "many"', "1 or more"),
    _edit("tokens-true", "max: 1024", "max: true", 10, f"{OUT}.max", "is true", "whole number of tokens"),
    _edit("tokens-zero", "p50: 250", "p50: 0", 10, f"{OUT}.p50", "is 0", "1 or more"),
    _edit("tokens-negative", "p50: 250", "p50: -250", 10, f"{OUT}.p50", "is -250", "1 or more"),
    _edit("tokens-empty", "p50: 250", "p50: ~", 10, f"{OUT}.p50", "is empty", "whole number"),
    _edit("tokens-list", "p50: 250", "p50: [250]", 10, f"{OUT}.p50", "is a list", "whole number"),
    _edit("tokens-nan", "max: 1024", "max: .nan", 10, f"{OUT}.max", ".nan", "finite"),
    _edit("tokens-inf", "max: 1024", "max: .inf", 10, f"{OUT}.max", ".inf", "finite"),
    _edit("tokens-huge", "max: 1024", "max: 99999999999", 10, f"{OUT}.max", "at most 1000000000"),
    _edit("tokens-endless", "max: 1024", "max: " + "9" * 5000, 10, f"{OUT}.max", "5000 characters", schema=False),
    _edit("tokens-octal", "concurrency: 32", "concurrency: 040", 11, f"{W}.concurrency", "write 40", schema=False),
    _edit("tokens-underscore", "max: 7168", "max: 7_168", 9, f"{IN}.max", "write 7168", schema=False),
    _edit("tokens-base-60", "max: 7168", "max: 2:00:00", 9, f"{IN}.max", "decimal", schema=False),
    _edit("tokens-exponent", "max: 7168", "max: 7.2e3", 9, f"{IN}.max", "write 7200"),
    _edit("bare-prompt", "output_tokens: {p50: 250, p95: 900, max: 1024}", "output_tokens: 900", 10, OUT,
          "is 900, not a mapping", "{p95: 900, max: 1024}"),
    _edit("concurrency-float", "concurrency: 32", "concurrency: 32.5", 11, f"{W}.concurrency", "write 33"),
    _edit("concurrency-zero", "concurrency: 32", "concurrency: 0", 11, f"{W}.concurrency", "1 or more"),
    _edit("rate-zero", "requests_per_s: 4", "requests_per_s: 0", 12, f"{W}.requests_per_s", "more than 0"),
    _edit("rate-negative", "requests_per_s: 4", "requests_per_s: -1.5", 12, f"{W}.requests_per_s", "is -1.5"),
    _edit("rate-unit", "requests_per_s: 4", "requests_per_s: 4/s", 12, f"{W}.requests_per_s", "write 4"),
    _edit("rate-infinite", "requests_per_s: 4", "requests_per_s: 1e999", 12, f"{W}.requests_per_s", "finite"),
    _edit("prefix-negative", "shared_prefix_tokens: 1000", "shared_prefix_tokens: -1", 13,
          f"{W}.shared_prefix_tokens", "0 or more"),
    _edit("template-text", "chat_template_tokens: 64", "chat_template_tokens: few", 14,
          f"{W}.chat_template_tokens", '"few"'),
    _edit("trace-number", "trace: traces/chat.csv", "trace: 7", 15, f"{W}.trace", "not text", 'write "7"'),
    _edit("slo-ms-value", "ttft_p95_s: 2.0", "ttft_p95_s: 1500ms", 16, "slo.ttft_p95_s", "write 1.5"),
    _edit("slo-in-ms", "tpot_p95_s: 0.05", "tpot_p95_s: 50", 16, "slo.tpot_p95_s", "at most 10", "write 0.05"),
    _edit("slo-zero", "tpot_p95_s: 0.05", "tpot_p95_s: 0", 16, "slo.tpot_p95_s", "more than 0"),
    _edit("slo-true", "e2e_p99_s: 60", "e2e_p99_s: true", 16, "slo.e2e_p99_s", "is true", "seconds"),
    _edit("slo-list", "slo: {ttft_p50_s: 1, ttft_p95_s: 2.0, tpot_p95_s: 0.05, e2e_p99_s: 60}", "slo: [1, 2]", 16,
          "slo", "is a list", "ttft_p95_s"),
    _edit("policy-word", "kv_cache_quantization: ask", "kv_cache_quantization: askk", 18,
          "policy.kv_cache_quantization", "never, ask, prefer", "did you mean ask?"),
    _edit("policy-case", "kv_cache_quantization: ask", "kv_cache_quantization: Never", 18,
          "policy.kv_cache_quantization", "did you mean never?"),
    _edit("policy-no", "kv_cache_quantization: ask", "kv_cache_quantization: no", 18,
          "policy.kv_cache_quantization", "`no`", "write false"),
    _edit("headroom-percent", "headroom: 0.8", "headroom: 80%", 19, "policy.headroom", "write 0.8"),
    _edit("headroom-80", "headroom: 0.8", "headroom: 80", 19, "policy.headroom", "up to 1", "write 0.8"),
    _edit("headroom-zero", "headroom: 0.8", "headroom: 0", 19, "policy.headroom", "above 0"),
    _edit("headroom-over-1", "headroom: 0.8", "headroom: 1.25", 19, "policy.headroom", "up to 1"),
    _edit("model-number", "id: Qwen/Qwen2.5-7B-Instruct", "id: 7", 6, "model.id", 'write "7"'),
    _edit("model-address", "id: Qwen/Qwen2.5-7B-Instruct", "id: https://example.org/Qwen/Qwen2.5-7B/tree/main", 6,
          "model.id", "write Qwen/Qwen2.5-7B", schema=False),
    _edit("model-blank", "id: Qwen/Qwen2.5-7B-Instruct", 'id: "  "', 6, "model.id", "empty text"),
    _edit("revision-number", "revision: abc123", "revision: 1234567", 6, "model.revision", 'write "1234567"'),
    _edit("weights-zero", "weights_gib_per_gpu: 7.5", "weights_gib_per_gpu: 0", 6, "model.weights_gib_per_gpu",
          "more than 0"),
    _edit("weights-in-mib", "weights_gib_per_gpu: 7.5", "weights_gib_per_gpu: 7680", 6, "model.weights_gib_per_gpu",
          "write 7.5 if MiB"),
    _edit("weights-in-gb", "weights_gib_per_gpu: 7.5", "weights_gib_per_gpu: 15.2 GB", 6,
          "model.weights_gib_per_gpu", "write 14.1561"),
    _edit("count-zero", "count: 2", "count: 0", 7, "gpu.count", "whole number of gpus, 1 or more"),
    _edit("count-float", "count: 2", "count: 1.5", 7, "gpu.count", "write 2"),
    _edit("memory-text", "memory_gib: 79.19", "memory_gib: 80GiB", 7, "gpu.memory_gib", "write 80"),
    _edit("memory-in-mib", "memory_gib: 79.19, free_gib: 78.68", "memory_gib: 81559", 7, "gpu.memory_gib",
          "write 79.6475 if MiB"),
    _edit("memory-in-bytes", "memory_gib: 79.19, free_gib: 78.68", "memory_gib: 85899345920", 7, "gpu.memory_gib",
          "write 80 if bytes"),
    _edit("free-over-total", "free_gib: 78.68", "free_gib: 80", 7, "gpu.free_gib", "more than memory_gib (79.19)",
          schema=False),
    _edit("capability-whole", "compute_capability: 9.0", "compute_capability: 9", 7, "gpu.compute_capability",
          "write 9.0", schema=False),
    _edit("capability-sm", "compute_capability: 9.0", "compute_capability: sm_120", 7, "gpu.compute_capability",
          "write 12.0"),
    _edit("capability-list", "compute_capability: 9.0", "compute_capability: [9, 0]", 7, "gpu.compute_capability",
          "is a list", "such as 9.0"),
    _edit("gpu-several", "name: H100 80GB", "name: 2x H100 80GB", 7, "gpu.name", "count: 2", schema=False),
    _edit("version-float", '"0.32.0"', "0.10", 21, "engine.vllm_version", 'write "0.10"', "0.1"),
    _edit("version-word", '"0.32.0"', "latest", 21, "engine.vllm_version", "not a vLLM version", '"0.32.0"'),
    _edit("version-list", '"0.32.0"', "[0, 32]", 21, "engine.vllm_version", "is a list", "in quotes"),
    _edit("pin-empty", "max-model-len: 8192", "max-model-len:", 22, "engine.max_model_len", "has no value", "default"),
    _edit("pin-nan", "max-model-len: 8192", "gpu_memory_utilization: .nan", 22, "engine.gpu_memory_utilization",
          "finite", schema=False),
    _edit("pin-nested-inf", "mode: 3", "mode: .inf", 23, "engine.compilation_config.mode", "finite", schema=False),
    _edit("pin-yes", "max-model-len: 8192", "enable_prefix_caching: yes", 22, "engine.enable_prefix_caching",
          "write true", schema=False),
    _edit("gate-negative", "preemptions_max: 0", "preemptions_max: -1", 25, "gate.preemptions_max", "0 or more"),
    _edit("gate-percent", "kv_peak_max: 0.95", "kv_peak_max: 95", 26, "gate.kv_peak_max", "write 0.95"),
    _edit("gate-bytes", "kv_peak_max: 0.95", "gpu_memory_free_bytes_min: 512 MiB", 26,
          "gate.gpu_memory_free_bytes_min", "write 536870912"),
    _edit("gate-over-limit", "kv_peak_max: 0.95", "over_limit: warning", 26, "gate.over_limit", "did you mean warn?"),
    _edit("gate-levels-word", "kv_peak_max: 0.95", "levels: warn", 26, "gate.levels", "not a mapping"),
    _edit("gate-levels-off", "kv_peak_max: 0.95", "levels: {preemptions: allow}", 26, "gate.levels.preemptions",
          "error, warn"),
    _edit("gate-levels-typo", "kv_peak_max: 0.95", "levels: {preemption: warn}", 26, "gate.levels.preemption",
          "did you mean preemptions?"),
    _edit("gate-levels-fixed", "kv_peak_max: 0.95", "levels: {no_oom: warn}", 26, "gate.levels.no_oom",
          "expected error"),
    _edit("schema-other", "kvadvise.workload/1", "kvadvise.workload/2", 1, "schema", "kvadvise.workload/1"),
    _edit("plan-text", "plan: {schema: kvadvise.plan/1, outcome: fits, kv: {num_blocks: 12345}}", "plan: plan.json",
          27, "plan", "not a mapping"),
    _edit("name-endless", "name: chat", f"name: {'chat' * 300}", 2, "name", "has 1200 characters", schema=False),
    _edit("name-lines", "name: chat", 'name: "a\\nb"', 2, "name", "on one line", schema=False),
]  # fmt: skip

TOGETHER = [
    _edit("prompt-falls", "p95: 6500", "p95: 4999", 9, f"{IN}.p95", "p90 (5000)", "5000 or more", schema=False),
    _edit("p95-below-p50", "p95: 900", "p95: 200", 10, f"{OUT}.p95", "less than p50 (250)", schema=False),
    _edit("max-below-p99", "max: 7168", "max: 6999", 9, f"{IN}.max", "less than p99 (7000)", schema=False),
    _edit("slo-falls", "ttft_p95_s: 2.0", "ttft_p95_s: 0.5", 16, "slo.ttft_p95_s", "less than ttft_p50_s (1)",
          schema=False),
    _edit("prefix-over-prompt", "shared_prefix_tokens: 1000", "shared_prefix_tokens: 1201", 13,
          f"{W}.shared_prefix_tokens", "more than prompt_tokens.p50 (1200)", "shortest prompt", schema=False),
    _edit("hit-rates", "kv_peak_max: 0.95", "prefix_cache_hit_rate_min: 0.5\n  prefix_cache_hit_rate_max: 0.4", 27,
          "gate.prefix_cache_hit_rate_max", "less than prefix_cache_hit_rate_min", schema=False),
]  # fmt: skip

KEYS = [
    _edit("top-typo", "gpu: {name", "gpus: {name", 7, "gpus", "unknown key `gpus`", "did you mean gpu?", alone=False),
    _edit("load-typo", "concurrency: 32", "concurrency: 32\n  concurency: 3", 12, f"{W}.concurency",
          "did you mean concurrency?"),
    _edit("load-dashed", "shared_prefix_tokens", "shared-prefix-tokens", 13, f"{W}.shared-prefix-tokens",
          "did you mean shared_prefix_tokens?"),
    _edit("load-synonym", "requests_per_s: 4", "qps: 4", 12, f"{W}.qps", "did you mean requests_per_s?"),
    _edit("percentile-typo", "p99: 7000", "p98: 7000", 9, f"{IN}.p98", "unknown key `p98`", "p9"),
    _edit("percentile-far", "p99: 7000", "stddev: 12", 9, f"{IN}.stddev", "the keys here are p50, p90, p95, p99, max"),
    _edit("slo-ms", "ttft_p95_s: 2.0", "ttft_p95_ms: 2000", 16, "slo.ttft_p95_ms", "write ttft_p95_s: 2"),
    _edit("slo-no-unit", "tpot_p95_s: 0.05", "tpot_p95: 0.05", 16, "slo.tpot_p95", "write tpot_p95_s: 0.05"),
    _edit("slo-percentile", "e2e_p99_s: 60", "e2e_p50_s: 60", 16, "slo.e2e_p50_s", "did you mean e2e_p95_s?"),
    _edit("gpu-gb", "memory_gib: 79.19, free_gib: 78.68", "memory_gb: 80", 7, "gpu.memory_gb",
          "write memory_gib: 74.5058"),
    _edit("gpu-mib", "free_gib: 78.68", "free_mib: 512", 7, "gpu.free_mib", "write free_gib: 0.5"),
    _edit("gpu-count", "count: 2", "num_gpus: 2", 7, "gpu.num_gpus", "did you mean count?"),
    _edit("model-weights", "weights_gib_per_gpu: 7.5", "weights_gib: 7.5", 6, "model.weights_gib",
          "did you mean weights_gib_per_gpu?"),
    _edit("policy-typo", "headroom: 0.8", "head_room: 0.8", 19, "policy.head_room", "did you mean headroom?"),
    _edit("gate-order", "kv_peak_max: 0.95", "max_preemptions: 3", 26, "gate.max_preemptions",
          "did you mean preemptions_max?"),
    _edit("gate-typo", "kv_peak_max: 0.95", "sucess_rate_min: 0.99", 26, "gate.sucess_rate_min",
          "did you mean success_rate_min?"),
    _edit("misplaced-load", "schema: kvadvise.workload/1", "concurrency: 32", 1, "concurrency",
          "it belongs under workload"),
    _edit("misplaced-pin", "headroom: 0.8", "max_model_len: 8192", 19, "policy.max_model_len",
          "it belongs under engine"),
    _edit("misplaced-top", "headroom: 0.8", "slo: {}", 19, "policy.slo", "it belongs at the top level"),
    _edit("pin-capital", "max-model-len: 8192", "Max_Model_Len: 8192", 22, "engine.Max_Model_Len",
          "did you mean max_model_len?"),
    _edit("pin-short", "max-model-len: 8192", "-tp: 2", 22, "engine._tp", "the long name"),
    _edit("pin-dotted", "max-model-len: 8192", "compilation_config.mode: 3", 22, "engine.compilation_config.mode",
          "write compilation_config: {mode: ...}", alone=False),
    _edit("pin-blanks", "max-model-len: 8192", "max model len: 8192", 22, "engine.max model len",
          "not an argument's name"),
    _edit("pin-twice", "max-model-len: 8192", "max-model-len: 8192\n  max_model_len: 4096", 23,
          "engine.max_model_len", "given twice", "line 22", schema=False),
    _edit("key-twice", "concurrency: 32", "concurrency: 32\n  concurrency: 64", 12, f"{W}.concurrency",
          "given twice, first on line 11", schema=False),
    _edit("key-empty", "headroom: 0.8", '"": 0.8', 19, "policy", "a key is empty"),
    _edit("key-list", "headroom: 0.8", "? [a, b]\n  : 0.8", 19, "policy", "a key is a list", schema=False),
    _edit("key-control", "headroom: 0.8", '"\\e[31mred": 0.8', 19, r"policy.\x1b[31mred", "unknown key"),
]  # fmt: skip


def _without(*starts: str) -> str:
    return "".join(line for line in MINIMAL.splitlines(True) if not line.strip().startswith(starts))


MISSING = [
    Bad("no-model", _without("model"), 1, "model", ("is missing", "org/name")),
    Bad("no-gpu", _without("gpu"), 1, "gpu", ("is missing", "auto or cpu")),
    Bad("no-workload", MINIMAL[: MINIMAL.index("workload")], 1, "workload", ("is missing", "prompt_tokens")),
    Bad("no-concurrency", _without("concurrency"), 3, f"{W}.concurrency", ("is missing", "in flight")),
    Bad("no-prompt", _without("prompt_tokens"), 3, IN, ("is missing", "{p95: 6500, max: 7168}")),
    Bad("no-output", _without("output_tokens"), 3, OUT, ("is missing", "{p95: 900, max: 1024}")),
    Bad("no-p95", edited("{p95: 6500}", "{p50: 6500}", MINIMAL), 4, f"{IN}.p95", ("is missing", "p95 or max")),
    Bad("model-without-id", edited("Qwen/Qwen2.5-7B-Instruct", "{revision: main}", MINIMAL), 1, "model.id",
        ("is missing", "id or path")),
    Bad("gpu-without-name", edited("RTX 4090", "{count: 2}", MINIMAL), 2, "gpu.name", ("is missing", "a GPU's name")),
    Bad("workload-empty", MINIMAL[: MINIMAL.index("workload")] + "workload:\n", 3, f"{W}.concurrency",
        ("is missing",), alone=False),
]  # fmt: skip


def _text(name: str, text: str, line: int, key: str, *tells: str, schema: bool = False) -> Bad:
    return Bad(name, text, line, key, tells, schema)


TEXTS = [
    _text("empty", "", 1, "", "the file is empty", "model, gpu and workload", schema=True),
    _text("comments-only", "# nothing\n\n# here\n", 1, "", "the file is empty", schema=True),
    _text("null-document", "---\n...\n", 1, "", "the file is empty", schema=True),
    _text("top-list", "- model\n- gpu\n", 1, "", "is a list", "model, gpu and workload", schema=True),
    _text("top-word", "hello\n", 1, "", 'the text "hello"', "model, gpu and workload", schema=True),
    _text("top-number", "42\n", 1, "", "is 42", "model, gpu and workload", schema=True),
    _text(
        "model-list", edited("Qwen/Qwen2.5-7B-Instruct", "[a, b]", MINIMAL), 1, "model", "a list", "hub id", schema=True
    ),
    _text("gpu-list", edited("RTX 4090", "[a, b]", MINIMAL), 2, "gpu", "is a list", "auto or cpu", schema=True),
    _text(
        "gpu-number", edited("RTX 4090", "4090", MINIMAL), 2, "gpu", "is 4090, not text", "a GPU's name", schema=True
    ),
    _text("gpu-times", edited("RTX 4090", "RTX 4090 x2", MINIMAL), 2, "gpu", "{name: RTX 4090, count: 2}"),
    _text("engine-list", MINIMAL + "engine: [a]\n", 7, "engine", "is a list", "max_model_len: 8192", schema=True),
    _text("two-documents", MINIMAL + "---\n" + MINIMAL, 7, "", "second document", "split it"),
    _text("tab", edited("  concurrency", "\tconcurrency", MINIMAL), 6, "", "not YAML", "takes no tabs"),
    _text("unclosed", edited("{p95: 6500}", "{p95: 6500", MINIMAL), 5, "", "not YAML", "close the `{`"),
    _text("unquoted-colon", edited("RTX 4090", "RTX: 4090: x", MINIMAL), 2, "", "not YAML", "quote a value"),
    _text("at-sign", edited("RTX 4090", "@auto", MINIMAL), 2, "", "not YAML", "special character"),
    _text("indent", edited("  concurrency", "   concurrency", MINIMAL), 6, "", "not YAML", "indentation"),
    _text("control", edited("RTX 4090", "RTX\x00 4090", MINIMAL), 2, "", r"\x00", "UTF-8"),
    _text("surrogate", edited("RTX 4090", "RTX\ud800", MINIMAL), 2, "", r"\ud800", "UTF-8"),
    _text("anchor", edited("RTX 4090", "&card RTX 4090", MINIMAL), 2, "gpu", "`&card` is an anchor", "write the value"),
    _text("alias", edited("{max: 1024}", "*lengths", MINIMAL), 5, OUT, "`*lengths` is an alias", "write the value"),
    _text("merge", MINIMAL + "  <<: {requests_per_s: 4}\n", 7, f"{W}.<<", "merge key", "write the keys out"),
    _text("tag", edited("RTX 4090", "!!str RTX 4090", MINIMAL), 2, "gpu", "`!!str`", "without a tag"),
    _text(
        "python-tag", edited("RTX 4090", "!!python/name:os.system [id]", MINIMAL), 2, "gpu", "!!python/name:os.system"
    ),
    _text(
        "too-deep", f"{MINIMAL}engine: {{a: {'[' * 60}{']' * 60}}}\n", 7, "engine.a" + "[0]" * 22, "deep", "24 levels"
    ),
    _text("too-large", f"{MINIMAL}# {'x' * 1024 * 1024}", 1, "", "larger than 1 MiB"),
    _text("too-many", f"{MINIMAL}engine: {{a: [{'1,' * 60_000}]}}\n", 7, "engine.a[49989]", "50,000 values"),
]

RATE, ARRIVALS = "requests_per_s: 4", "workload.arrivals"
TRACE_LINE = "trace: traces/chat.csv"
COMING = [
    _edit("arrivals-word", RATE, f"{RATE}\n  arrivals: poisson", 13, ARRIVALS, "not a mapping", "cv: 2"),
    _edit(
        "arrivals-process",
        RATE,
        f"{RATE}\n  arrivals: {{process: poison}}",
        13,
        f"{ARRIVALS}.process",
        "did you mean poisson?",
    ),
    _edit("arrivals-without-process", RATE, f"{RATE}\n  arrivals: {{cv: 2}}", 13, f"{ARRIVALS}.process", "is missing"),
    _edit(
        "arrivals-key",
        RATE,
        f"{RATE}\n  arrivals: {{process: gamma, burstiness: 2}}",
        13,
        f"{ARRIVALS}.burstiness",
        "did you mean cv?",
        alone=False,
    ),
    _edit(
        "gamma-without-cv",
        RATE,
        f"{RATE}\n  arrivals: {{process: gamma}}",
        13,
        f"{ARRIVALS}.process",
        "gamma without cv",
    ),
    _edit("cv-negative", RATE, f"{RATE}\n  arrivals: {{process: gamma, cv: -1}}", 13, f"{ARRIVALS}.cv", "0 or more"),
    _edit(
        "cv-of-constant",
        RATE,
        f"{RATE}\n  arrivals: {{process: constant, cv: 2}}",
        13,
        f"{ARRIVALS}.cv",
        "process: gamma",
    ),
    _edit("arrivals-without-rate", RATE, "arrivals: {process: constant}", 12, ARRIVALS, "requests_per_s", schema=False),
    _edit(
        "pieces-and-rate",
        RATE,
        f"{RATE}\n  arrivals: {{process: piecewise, rates: [[0, 2]]}}",
        12,
        f"{W}.requests_per_s",
        "one of them",
        schema=False,
    ),
    _edit(
        "pieces-late",
        RATE,
        "arrivals: {process: piecewise, rates: [[5, 2]]}",
        12,
        f"{ARRIVALS}.rates",
        "second 0",
        schema=False,
    ),
    _edit(
        "pieces-back",
        RATE,
        "arrivals: {process: piecewise, rates: [[0, 2], [9, 1], [9, 2]]}",
        12,
        f"{ARRIVALS}.rates",
        "seconds that rise",
        schema=False,
    ),
    _edit(
        "pieces-still",
        RATE,
        "arrivals: {process: piecewise, rates: [[0, 0]]}",
        12,
        f"{ARRIVALS}.rates",
        "all 0",
        schema=False,
    ),
    _edit(
        "pieces-flat",
        RATE,
        "arrivals: {process: piecewise, rates: [0, 2]}",
        12,
        f"{ARRIVALS}.rates",
        "no pair",
        "[[0, 2], [60, 5]]",
    ),
    _edit("pieces-empty", RATE, "arrivals: {process: piecewise, rates: []}", 12, f"{ARRIVALS}.rates", "an empty list"),
    _edit(
        "pieces-text", RATE, "arrivals: {process: piecewise, rates: [[0, 2rps]]}", 12, f"{ARRIVALS}.rates", "write 2"
    ),
    _edit(
        "trace-window",
        TRACE_LINE,
        "trace: {file: a.csv, from_s: 60, until_s: 60}",
        15,
        f"{W}.trace.until_s",
        "not after from_s (60)",
        schema=False,
    ),
    _edit(
        "trace-share",
        TRACE_LINE,
        "trace: {file: a.csv, keep_fraction: 50%}",
        15,
        f"{W}.trace.keep_fraction",
        "write 0.5",
    ),
    _edit("trace-without-file", TRACE_LINE, "trace: {until_s: 60}", 15, f"{W}.trace.file", "is missing"),
    _edit("trace-scale", TRACE_LINE, "trace: {file: a.csv, time_scale: 0}", 15, f"{W}.trace.time_scale", "more than 0"),
]

BAD = [*VALUES, *COMING, *TOGETHER, *KEYS, *MISSING, *TEXTS]
