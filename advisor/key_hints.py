"""Which key was probably meant. Only for messages: no key is ever taken for another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from advisor.problems import shown
from advisor.unit_hints import Quantity, meant

_ALSO_CALLED = {
    "prompt_tokens": "prompt prompt_len prompt_length input_tokens input_len input_length context_tokens isl",
    "output_tokens": "output output_len output_length completion_tokens generated_tokens max_tokens osl",
    "requests_per_s": "rps qps rate request_rate arrival_rate",
    "arrivals": "arrival arrival_process traffic_shape",
    "cv": "burstiness coefficient_of_variation",
    "rates": "pieces schedule stages",
    "time_scale": "speed speedup",
    "requests_max": "max_requests num_prompts limit",
    "concurrency": "users concurrent_requests concurrent_users in_flight batch_size max_num_seqs",
    "shared_prefix_tokens": "system_prompt_tokens prefix_tokens prefix_len",
    "count": "num_gpus gpu_count number n",
    "p50": "median",
    "ttft_p95_s": "ttft ttft_s",
    "tpot_p95_s": "tpot tpot_s itl itl_s",
    "e2e_p95_s": "e2e e2e_s latency latency_s",
    "workload": "load traffic",
    "gpu": "gpus device hardware",
    "slo": "slos objectives sla",
    "engine": "engine_args vllm vllm_args flags args",
    "gate": "gates thresholds checks",
    "vllm_version": "version",
}
_SYNONYMS = {other: key for key, others in _ALSO_CALLED.items() for other in others.split()}
_UNITS: tuple[tuple[str, str, Quantity, str], ...] = (  # ending met, ending known, its quantity, the unit met
    ("_ms", "_s", "seconds", "ms"),
    ("_us", "_s", "seconds", "us"),
    ("_seconds", "_s", "seconds", "s"),
    ("_sec", "_s", "seconds", "s"),
    ("_gb", "_gib", "gib", "gb"),
    ("_mb", "_gib", "gib", "mb"),
    ("_mib", "_gib", "gib", "mib"),
    ("_bytes", "_gib", "gib", "b"),
    ("", "_s", "seconds", "s"),
)


def nearest(key: str, known: Iterable[str]) -> str | None:
    """The known word that `key` is another spelling of or looks most like, or None where none does."""
    from difflib import get_close_matches

    names = list(known)
    spelled = key[:60].lower().lstrip("-").replace("-", "_").replace(" ", "_")
    if spelled in names:
        return spelled
    if _SYNONYMS.get(spelled) in names:
        return _SYNONYMS[spelled]
    return next(iter(get_close_matches(spelled, names, n=1, cutoff=0.7)), None)


def instead_of(key: str, value: str, known: Iterable[str], elsewhere: Mapping[str, Iterable[str]]) -> str:
    """What to write instead of an unknown key. `elsewhere` maps all sections to the keys they hold."""
    names = list(known)
    converted = _in_other_unit(key, value, names)
    if converted is not None:
        return f"write {converted}"
    home = next((section for section, keys in elsewhere.items() if key in keys), None)
    if home is not None:
        return f"it belongs under {home}" if home else "it belongs at the top level"
    near = nearest(key, names)
    if near is not None:
        return f"did you mean {near}?"
    for section, keys in elsewhere.items():
        near = nearest(key, keys)
        if near is not None:
            return f"did you mean {section}.{near}?" if section else f"did you mean {near}, at the top level?"
    return f"the keys here are {', '.join(names)}"


def _in_other_unit(key: str, value: str, names: list[str]) -> str | None:
    """`key: value` as it should be written, where `key` is a known one in another unit."""
    for ending, known_ending, quantity, unit in _UNITS:
        name = key.removesuffix(ending) + known_ending
        if key.endswith(ending) and name in names:
            amount = meant(f"{value}{unit}", quantity) or meant(value, quantity)
            if amount is not None and unit in ("gb", "mb"):
                amount += f" if {unit.upper()} of 10^{9 if unit == 'gb' else 6} bytes are meant"
            in_words = "seconds" if quantity == "seconds" else "GiB"
            return f"{name}: {amount}" if amount is not None else f"{name}, in {in_words} ({shown(value)} is none)"
    return None
