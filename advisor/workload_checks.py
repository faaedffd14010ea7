"""What must go together in a workload file: percentiles that rise, a prefix within the prompt, real sizes."""

from __future__ import annotations

from typing import Any

from advisor.problems import written
from advisor.workload_fields import Reading
from advisor.yaml_nodes import join

PERCENTILES = ("p50", "p90", "p95", "p99", "max")
_GPU_GIB_AT_MOST = 4096.0  # an order of magnitude above the largest card; a host has more
_HOST_GIB_AT_MOST = 65536.0
_HOSTS = ("cpu", "auto")


def _wrong(reading: Reading, key: str, name: str, message: str, expected: str) -> None:
    dotted = join(key, name)
    reading.wrong(dotted, reading.lines[dotted], message, expected)


def rising(reading: Reading, key: str, values: dict[str, Any], names: tuple[str, ...]) -> None:
    """Note each of `names` that is below an earlier one."""
    highest = ""
    for name in names:
        if name not in values:
            continue
        if highest and values[name] < values[highest]:
            before = written(values[highest])
            message = f"is {written(values[name])}, less than {highest} ({before})"
            _wrong(reading, key, name, message, f"expected {before} or more: percentiles do not fall")
        else:
            highest = name


def lengths(reading: Reading, key: str, values: dict[str, Any]) -> None:
    """The percentiles of a token count rise."""
    rising(reading, key, values, PERCENTILES)


def objectives(reading: Reading, key: str, values: dict[str, Any]) -> None:
    """The percentiles of each objective rise."""
    for metric in ("ttft", "tpot", "e2e"):
        rising(reading, key, values, tuple(f"{metric}_{p}_s" for p in ("p50", "p95", "p99")))


def load(reading: Reading, key: str, values: dict[str, Any]) -> None:
    """Every prompt holds the shared prefix, so none is shorter."""
    prefix = values.get("shared_prefix_tokens", 0)
    prompt: dict[str, int] = values.get("prompt_tokens", {})
    shorter = next((name for name in PERCENTILES if prompt.get(name, prefix) < prefix), None)
    if shorter is not None:
        message = f"is {prefix}, more than prompt_tokens.{shorter} ({prompt[shorter]})"
        expected = "expected no more than the shortest prompt: prompt_tokens count the prefix too"
        _wrong(reading, key, "shared_prefix_tokens", message, expected)

    _arrivals_have_a_rate(reading, key, values)


def _arrivals_have_a_rate(reading: Reading, key: str, values: dict[str, Any]) -> None:
    process = values.get("arrivals", {}).get("process")
    rate = "requests_per_s"
    if process == "piecewise" and rate in values:
        _wrong(reading, key, rate, "is given beside arrivals.rates", "expected one of them: the pieces have rates")
    elif process not in (None, "piecewise") and rate not in values and "requests_per_s" not in _tried(reading, key):
        message = f"is {process} without a rate"
        _wrong(reading, key, "arrivals", message, "expected requests_per_s beside it: without it there is no arrival")


def _tried(reading: Reading, key: str) -> set[str]:
    """Keys that were given, right or wrong."""
    return {name.removeprefix(f"{key}.") for name in reading.lines if name.startswith(f"{key}.")}


def arrivals(reading: Reading, key: str, values: dict[str, Any]) -> None:
    """Gamma has a cv, piecewise its rates, and no other process takes them."""
    process, tried = values.get("process"), _tried(reading, key)
    for name, owner, example in (("cv", "gamma", "cv: 2"), ("rates", "piecewise", "rates: [[0, 2], [60, 5]]")):
        if process == owner and name not in tried:
            _wrong(
                reading, key, "process", f"is {owner} without {name}", f"expected {name} beside it, such as {example}"
            )
        elif process not in (None, owner) and name in values:
            _wrong(reading, key, name, f"does not go with {process}", f"expected process: {owner}")


def trace(reading: Reading, key: str, values: dict[str, Any]) -> None:
    """A window ends after it begins."""
    start, end = values.get("from_s", 0.0), values.get("until_s")
    if end is not None and end <= start:
        _wrong(
            reading, key, "until_s", f"is {written(end)}, not after from_s ({written(start)})", "expected a later one"
        )


def gpu(reading: Reading, key: str, values: dict[str, Any]) -> None:
    """Memory is in GiB, and what is free is part of it."""
    limit = _HOST_GIB_AT_MOST if values.get("name") in _HOSTS else _GPU_GIB_AT_MOST
    sizes = {name: values[name] for name in ("memory_gib", "free_gib") if name in values}
    for name, size in sizes.items():
        if size > limit:
            _wrong(reading, key, name, f"is {written(size)}, more than a device has", in_gib(size))
    free, memory = sizes.get("free_gib"), sizes.get("memory_gib")
    if free is not None and memory is not None and free > memory:
        message = f"is {written(free)}, more than memory_gib ({written(memory)})"
        _wrong(reading, key, "free_gib", message, "expected what is free of the memory on an idle card")


def model(reading: Reading, key: str, values: dict[str, Any]) -> None:
    """Weights on one GPU fit the largest GPU there is."""
    size = values.get("weights_gib_per_gpu", 0.0)
    if size > _GPU_GIB_AT_MOST:
        message = f"is {written(size)}, more than a device holds"
        _wrong(reading, key, "weights_gib_per_gpu", message, in_gib(size))


def gate(reading: Reading, key: str, values: dict[str, Any]) -> None:
    """A least hit rate is not above the highest."""
    rising(reading, key, values, ("prefix_cache_hit_rate_min", "prefix_cache_hit_rate_max"))


def in_gib(size: float) -> str:
    """What to write for a size that cannot be GiB."""
    is_bytes = size >= 1024**3
    gib = size / 1024**3 if is_bytes else size / 1024
    return f"expected GiB: write {written(gib)} if {'bytes' if is_bytes else 'MiB'} are meant"
