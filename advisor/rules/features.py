"""Rules of what comes beside plain serving: offloading, drafts, images, eager mode, connectors."""

from __future__ import annotations

from advisor.drafting import draft_kind
from advisor.rules.table import Hit, InputRule, Planned, PlanRule
from advisor.sizing import Problem

_OFFLOADS = ("cpu_offload_gb", "swap_space", "kv_offloading_size", "kv_transfer_config", "offload_backend")


def _offload(problem: Problem) -> Hit | None:
    used = [name for name in _OFFLOADS if problem.pins.get(name)]
    if not used:
        return None
    return Hit(
        f"{', '.join(used)} does not enlarge the room of a request: every running request must fit the GPU's own KV "
        "cache; cpu_offload_gb moves weights, connectors keep what is not running",
        "plan as without it; expect prefix hits from it, not capacity",
    )


def _cpu_offload(problem: Problem) -> Hit | None:
    moved = problem.pins.get("cpu_offload_gb")
    if not isinstance(moved, int | float) or moved <= 0:
        return None
    return Hit(
        f"the plan counts all weights on the GPU; {moved:g} GiB of them move to the host, and every step reads them "
        "back",
        "prefer a quantised checkpoint or more GPUs",
    )


def _hybrid_manager(planned: Planned) -> Hit | None:
    engine, model = planned.sized.engine, planned.problem.model
    if not engine.disable_hybrid_kv_cache_manager or not model.sliding_window:
        return None
    return Hit(
        "the hybrid KV cache manager is off: sliding layers keep every token like full ones",
        "leave disable_hybrid_kv_cache_manager out; a KV connector may switch it off too",
    )


def _connector(problem: Problem) -> Hit | None:
    if not problem.pins.get("kv_transfer_config") or not problem.model.sliding_window:
        return None
    return Hit(
        "a KV connector that cannot handle several groups switches the hybrid KV cache manager off: then sliding "
        "layers keep every token, which this plan does not count",
        "look for `Hybrid KV cache manager is disabled` in the log; plan with disable_hybrid_kv_cache_manager: true",
    )


def _draft_unknown(problem: Problem) -> Hit | None:
    if draft_kind(problem.model, problem.pins) != "unknown":
        return None
    config = problem.pins["speculative_config"]
    name = config.get("model") or config.get("method")
    return Hit(
        f"the drafter ({name}) has weights and a KV cache of its own, and nothing is known of its size",
        "plan the two by hand: state the sum as model.weights_gib_per_gpu, and expect fewer blocks",
    )


def _speculative(problem: Problem) -> Hit | None:
    kind = draft_kind(problem.model, problem.pins)
    if kind not in ("nothing", "mtp"):
        return None
    tokens = problem.pins["speculative_config"].get("num_speculative_tokens", 0)
    own = (
        f"; its {problem.model.num_nextn_layers} MTP layer(s) keep keys and values, which are counted"
        if kind == "mtp"
        else ""
    )
    return Hit(
        f"up to {tokens} speculative tokens a request are held beside its own, and as many states in hybrid "
        f"models{own}",
        "compare the blocks after the start with the plan",
    )


def _images(problem: Problem) -> Hit | None:
    if not problem.model.is_multimodal or problem.pins.get("limit_mm_per_prompt") or _text_only(problem):
        return None
    return Hit(
        "a multimodal model reserves memory for its largest item (image, video, audio) at every start, and items "
        "count as prompt tokens",
        "text only: limit_mm_per_prompt: {image: 0, video: 0} (or language_model_only); else limit items, and pixels "
        "with mm_processor_kwargs",
    )


def _text_only(problem: Problem) -> bool:
    return bool(problem.pins.get("language_model_only"))


def _eager(problem: Problem) -> Hit | None:
    if problem.pins.get("enforce_eager") is not True or problem.gpu.is_cpu:
        return None
    return Hit(
        "enforce_eager saves the CUDA graphs' memory and costs speed at every step",
        "a smaller max_cudagraph_capture_size saves most of that memory",
    )


def _logprobs(problem: Problem) -> Hit | None:
    asked = problem.pins.get("max_logprobs")
    if not isinstance(asked, int) or 0 <= asked <= 20:
        return None
    chunk = problem.pins.get("max_num_batched_tokens") or 8192
    need = int(chunk) * problem.model.vocab_size * 2
    return Hit(
        f"prompt_logprobs over the vocabulary need about {need / 1024**3:.2f} GiB a step, outside every budget",
        "leave max_logprobs at its default, or keep a lower share and let verify send such a request",
    )


INPUTS = (
    InputRule(
        code="draft-model-unknown",
        severity="error",
        check=_draft_unknown,
        consequence="does_not_fit",
        source="vllm#9995, vllm#24505",
    ),
    InputRule(code="offload-no-room", severity="warning", check=_offload, source="LMCache#1372, vllm#23087"),
    InputRule(code="cpu-offload-weights", severity="warning", check=_cpu_offload, source="vLLM config/cache.py"),
    InputRule(code="connector-sliding", severity="warning", check=_connector, source="vLLM config/vllm.py"),
    InputRule(code="speculation", severity="note", check=_speculative, source="vllm#12755"),
    InputRule(code="images-reserved", severity="note", check=_images, source="vllm#18550, vllm#16570"),
    InputRule(code="eager", severity="note", check=_eager, source="vllm#15598"),
    InputRule(code="prompt-logprobs", severity="warning", check=_logprobs, source="vllm#5907"),
)
PLANS = (
    PlanRule(
        code="sliding-as-full",
        severity="warning",
        check=_hybrid_manager,
        source="vLLM v1/core/kv_cache_utils.py: unify_hybrid_kv_cache_specs",
    ),
)
