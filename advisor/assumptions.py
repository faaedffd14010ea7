"""What a plan takes for granted, the vLLM release first."""

from __future__ import annotations

from advisor.measured import Measurement, key_of
from advisor.sizing import Problem, Sized


def assumptions(problem: Problem, sized: Sized) -> tuple[str, ...]:
    """Everything that would change the plan if it were otherwise."""
    lines = [_version(problem), *_weights(problem, sized), _device(problem), _backend(sized)]
    lines += _measured(problem, sized)
    lines += [f"model: {note}" for note in problem.facts.notes]
    lines += [f"layout: {note}" for note in sized.layout.notes]
    lines += _load(problem, sized)
    lines.append("requests ask for no prompt_logprobs, and nothing else runs on the device than is said")
    return tuple(lines)


def _version(problem: Problem) -> str:
    stated = problem.workload.engine.get("vllm_version")
    if stated is None:
        return f"vLLM {problem.version}: no engine.vllm_version is given, so the newest release compared is taken"
    return f"vLLM {problem.version}" + (
        "" if str(stated).lstrip("v") == str(problem.version) else f" (stated: {stated})"
    )


def _weights(problem: Problem, sized: Sized) -> list[str]:
    stated = problem.workload.model.weights_gib_per_gpu
    if stated is not None:
        return [f"weights: {stated:g} GiB per GPU, as stated, whatever the parallel sizes"]
    facts, count = problem.facts.weights, sized.weights
    seen = (
        f"; the checkpoint has {facts.total_bytes} bytes ({facts.basis}: {facts.source})" if facts is not None else ""
    )
    return [f"weights: {count.source}{seen}", *(f"weights: {note}" for note in count.notes)]


def _device(problem: Problem) -> str:
    gpu = problem.gpu
    if gpu.is_cpu:
        return f"memory: {gpu.free_bytes.value} bytes may be used by the engine"
    return (
        f"every GPU is a {gpu.name} with {gpu.total_bytes.value} bytes as the driver reports them, of which "
        f"{gpu.free_bytes.value} are free at start"
    )


def _measured(problem: Problem, sized: Sized) -> list[str]:
    """What of the costs real starts told, how many and when; and what turned the plan away from another setting."""
    mine = key_of(problem.model, sized.engine, problem.release)
    return [_own(known) if known.key == mine else _other(known) for known in problem.measured]


def _own(known: Measurement) -> str:
    outside = "memory outside torch" if known.key.gpu != "CPU" else "the engine's processes"
    parts = {"activations": known.activation, outside: known.non_torch, "CUDA graphs": known.cuda_graphs}
    told = ", ".join(name for name, span in parts.items() if span is not None)
    return f"{told}: as measured with these very settings, by {_starts(known)}"


def _other(known: Measurement) -> str:
    key = known.key
    return (
        f"what max_num_batched_tokens {key.max_num_batched_tokens}, max_num_seqs {key.max_num_seqs} and "
        f"tensor_parallel_size {key.tensor_parallel_size} cost is measured too, by {_starts(known)}; the plan moved on"
    )


def _starts(known: Measurement) -> str:
    count = "one start" if known.starts == 1 else f"{known.starts} starts"
    last = f", the last kept {known.kept_on}" if known.kept_on else ""
    source = f" ({known.sources[-1]})" if known.sources else ""
    return f"{count} of vLLM {known.key.vllm_version} on {known.key.gpu}{last}{source}"


def _backend(sized: Sized) -> str:
    return f"attention backend {sized.layout.backend}, KV cache dtype {sized.engine.cache_dtype}, {sized.engine.dtype}"


def _load(problem: Problem, sized: Sized) -> list[str]:
    load = problem.workload.workload
    lines = [
        f"a request holds the blocks of its whole p95 prompt and output ({problem.prompt_tokens} + "
        f"{problem.output_tokens} tokens) at once; on average it holds less",
    ]
    if not load.chat_template_tokens:
        lines.append("prompt_tokens are counted after the chat template")
    if load.shared_prefix_tokens and sized.engine.enable_prefix_caching:
        lines.append(f"{load.shared_prefix_tokens} tokens of every prompt are the same and stay cached")
    if problem.workload.origin:
        lines.append(f"the lengths come from: {problem.workload.origin}")
    return lines
