"""Questions to a server that is not under test by them: its model, its version, its metrics, its health."""

from __future__ import annotations

import math
import ssl
import time
from typing import Any

import httpx

from advisor.errors import EngineUnavailable, InvalidInput
from advisor.server_metrics import ServerMetrics, read_metrics
from verify.record.types import Served

_TIMEOUT_S = 10.0
_HEALTH_S = 2.0  # a busy server answers late, and that alone is not death
_LARGEST_ANSWER_BYTES = 32 << 20  # of /metrics; vLLM's own has some 100 kB an engine


def open_client(url: str, *, api_key: str | None, ca_file: str | None, version: str) -> httpx.AsyncClient:
    """A client for questions: no proxy, no redirect followed, one connection kept.

    Raises InvalidInput where `ca_file` cannot be read.
    """
    headers = {"User-Agent": f"kvadvise/{version} (verify)"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    try:
        verify = ssl.create_default_context(cafile=ca_file) if url.startswith("https://") else False
    except OSError as error:
        raise InvalidInput(
            f"cannot be read as certificates: {error}", where=str(ca_file), hint="a PEM file of the authority's"
        ) from error
    return httpx.AsyncClient(
        headers=headers, timeout=_TIMEOUT_S, trust_env=False, follow_redirects=False, verify=verify,
        limits=httpx.Limits(max_connections=4, max_keepalive_connections=2),
    )  # fmt: skip


async def served_by(
    client: httpx.AsyncClient, url: str, *, wanted_model: str | None
) -> tuple[Served, ServerMetrics | None]:
    """What answers at `url`, as it says itself, and its metrics.

    `wanted_model` is the name to ask under; where several models are listed it must be one of them. Raises
    EngineUnavailable where nothing answers, something else than vLLM's API does, or the key is refused.
    """
    listed = await _models(client, url)
    model = _chosen(listed, wanted_model, url)
    version = await _json_or_none(client, f"{url}/version")
    metrics = await _metrics_or_none(client, url)
    served = Served(
        url=url,
        model=str(model["id"]),
        max_model_len=_whole(model.get("max_model_len")),
        vllm_version=version.get("version") if isinstance(version.get("version"), str) else None,
        num_blocks=metrics.cache_int("num_gpu_blocks") if metrics is not None else None,
        block_size=metrics.cache_int("block_size") if metrics is not None else None,
        engines=metrics.engines or None if metrics is not None else None,
        cache_config=dict(metrics.cache) if metrics is not None else {},
    )
    return served, metrics


async def read_server(client: httpx.AsyncClient, url: str, at_s: float) -> ServerMetrics:
    """One reading of /metrics. Raises httpx.HTTPError, or ValueError where it is something else."""
    async with client.stream("GET", f"{url}/metrics", timeout=_TIMEOUT_S) as answer:
        if answer.status_code != httpx.codes.OK:
            raise ValueError(f"/metrics answers {answer.status_code}")
        data = bytearray()
        async for part in answer.aiter_bytes():
            data += part
            if len(data) > _LARGEST_ANSWER_BYTES:
                raise ValueError(f"/metrics answers more than {_LARGEST_ANSWER_BYTES >> 20} MiB")
    return read_metrics(data.decode("utf-8", "replace"), at_s)


async def is_healthy(client: httpx.AsyncClient, url: str) -> bool | None:
    """What /health says: True for 200, False for any other answer or none, None where it took too long to say."""
    try:
        return (await client.get(f"{url}/health", timeout=_HEALTH_S)).status_code == httpx.codes.OK
    except httpx.TimeoutException:
        return None
    except httpx.HTTPError:
        return False


async def _models(client: httpx.AsyncClient, url: str) -> list[dict[str, Any]]:
    where = f"{url}/v1/models"
    try:
        answer = await client.get(where)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EngineUnavailable(
            f"{url} does not answer: {_words(error)}", hint="is the server up, and is this its address?"
        ) from error
    if answer.status_code in (401, 403):
        raise EngineUnavailable(
            f"{url} refuses the key ({answer.status_code})", hint="put the server's key into KVADVISE_API_KEY"
        )
    if answer.is_redirect:
        to = answer.headers.get("location", "elsewhere")
        raise EngineUnavailable(f"{url} redirects to {to}", hint="give the address it redirects to")
    try:
        document = answer.json()
        listed = [entry for entry in document["data"] if isinstance(entry["id"], str)]
    except (ValueError, KeyError, TypeError):
        listed = []
    if answer.status_code != httpx.codes.OK or not listed:
        raise EngineUnavailable(
            f"{where} answers {answer.status_code} and no list of models", hint="give the address of a vLLM server"
        )
    return listed


def _chosen(listed: list[dict[str, Any]], wanted: str | None, url: str) -> dict[str, Any]:
    """The model asked for. A server with one model under another name is taken at its word only when nothing was asked
    for: judging another model than the plan's is the mistake this tool must not make.
    """
    for entry in listed:
        if wanted is not None and wanted in (entry["id"], entry.get("root")):
            return entry
    if wanted is None and len(listed) == 1:
        return listed[0]
    names = ", ".join(str(entry["id"]) for entry in listed[:5])
    if wanted is None:
        raise EngineUnavailable(f"{url} serves several models: {names}", hint="name one with --served-model")
    raise EngineUnavailable(
        f"{url} serves {names}, not {wanted}", hint="name the model it is served as with --served-model, or check --url"
    )


async def _json_or_none(client: httpx.AsyncClient, where: str) -> dict[str, Any]:
    try:
        document = (await client.get(where)).json()
    except (httpx.HTTPError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


async def _metrics_or_none(client: httpx.AsyncClient, url: str) -> ServerMetrics | None:
    try:
        return await read_server(client, url, time.perf_counter())
    except (httpx.HTTPError, ValueError):
        return None


def _whole(value: Any) -> int | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return int(value) if is_number and value > 0 else None


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
