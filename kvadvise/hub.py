"""Model facts from the hub: the JSON files and the headers of the weight files, nothing else.

huggingface_hub says where the hub is and who is asking (HF_ENDPOINT, HF_TOKEN, its stored token); it is imported only
here, and only when a model is asked for that is nowhere nearer. Weight files are read by range up to the end of
their header and the connection is closed. Nothing is written to the hub cache and no code of a repository is run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from advisor.errors import InvalidInput
from advisor.facts import ModelFacts, TensorFact
from kvadvise import __version__
from kvadvise.checkpoints import (
    INDEX,
    TORCH_INDEX,
    Weights,
    counted_safetensors,
    from_headers,
    from_index,
    index_shards,
)
from kvadvise.hub_errors import Unreachable, explain_status, explain_transport
from kvadvise.json_files import parse_object
from kvadvise.model_files import CONFIG, QUANT_CONFIG, TOKENIZER_CONFIG, no_config, token_limit
from kvadvise.safetensors_header import header_length, parse_header
from kvadvise.surroundings import Surroundings, is_set

if TYPE_CHECKING:
    import httpx

_AT_ONCE = 32
_FIRST_READ_BYTES = 128 * 1024  # most headers are shorter
_LARGEST_JSON_BYTES = 256 * 1024**2
_TRIES = 3
_PAUSE_S = 0.3
_WORTH_ANOTHER_TRY = frozenset({429, 500, 502, 503, 504})


def fetch_facts(model_id: str, revision: str | None, around: Surroundings) -> ModelFacts:
    """The facts of a repository on the hub; raises InvalidInput that says what is wrong and what to do about it."""
    import httpx

    repository = _Repository(model_id, revision, around)
    names = repository.names
    if CONFIG not in names:
        raise no_config(f"{model_id} on the hub", names)
    limits = httpx.Limits(max_connections=_AT_ONCE, max_keepalive_connections=_AT_ONCE)
    try:
        client = httpx.Client(
            headers={**repository.headers, "Accept-Encoding": "identity"},
            timeout=repository.timeout_s,
            follow_redirects=True,
            limits=limits,
        )
    except (ImportError, ValueError) as error:  # a proxy scheme that httpx lacks, or none at all
        raise Unreachable(f"the proxy settings cannot be used: {error}", where=model_id) from None
    with client:
        reader = _Reader(client, repository)
        config = reader.json(CONFIG)
        quant = reader.json(QUANT_CONFIG) if QUANT_CONFIG in names else None
        tokenizer = reader.json(TOKENIZER_CONFIG) if TOKENIZER_CONFIG in names else {}
        weights = _weights(reader, names)
    return ModelFacts(
        id=model_id,
        config=config,
        quant_config=quant,
        weights=weights.facts,
        resolved_from="hub",
        revision=repository.commit,
        model_max_length=token_limit(tokenizer),
        source=f"{CONFIG} of {model_id} on the hub, commit {(repository.commit or 'unknown')[:12]}",
        notes=weights.notes,
    )


class _Repository:
    """What the hub says of a repository: its commit and its file names."""

    def __init__(self, model_id: str, revision: str | None, around: Surroundings) -> None:
        from huggingface_hub import HfApi

        self.id = model_id
        self.endpoint = _endpoint(around)
        self.timeout_s = _timeout_s(around)
        token = _token(around)
        self.headers = {"User-Agent": f"kvadvise/{__version__}"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        api = HfApi(endpoint=self.endpoint, token=token or False)
        info = _ask(model_id, lambda: api.model_info(model_id, revision=revision, timeout=self.timeout_s))
        self.commit: str | None = info.sha
        self.revision = info.sha or revision or "main"
        self.names = frozenset(str(sibling.rfilename) for sibling in info.siblings or ())

    def url(self, name: str) -> str:
        """Where a file of this commit is."""
        from huggingface_hub import hf_hub_url

        return hf_hub_url(self.id, name, revision=self.revision, endpoint=self.endpoint)


def _endpoint(around: Surroundings) -> str | None:
    """HF_ENDPOINT, None where it is unset; raises InvalidInput where it is no web address."""
    endpoint = (around.env.get("HF_ENDPOINT") or "").strip().rstrip("/")
    if endpoint and not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", endpoint):
        raise Unreachable(f"{endpoint!r} is no web address", where="HF_ENDPOINT", hint="https://HOST, or unset it")
    return endpoint or None


def _token(around: Surroundings) -> str | None:
    """The token in the environment, else the one huggingface_hub has stored."""
    from huggingface_hub import get_token

    token = around.env.get("HF_TOKEN") or around.env.get("HUGGING_FACE_HUB_TOKEN")
    if token:
        return token.strip() or None
    return None if is_set(around.env.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")) else get_token()


def _timeout_s(around: Surroundings) -> float:
    """huggingface_hub's own setting, seconds; 10 where it is unset or no positive number."""
    try:
        value = float(around.env.get("HF_HUB_DOWNLOAD_TIMEOUT", "10"))
    except ValueError:
        return 10.0
    return value if 0 < value < 3600 else 10.0


def _ask(model_id: str, question: Callable[[], Any]) -> Any:
    """The answer of huggingface_hub; whichever of three HTTP libraries it uses, a failure becomes one clear error."""
    import sys

    import httpx
    from huggingface_hub.errors import HfHubHTTPError

    newer = sys.modules.get("httpx2")  # what huggingface_hub 2 is built on
    clients = (httpx, newer) if newer else (httpx,)
    transport = (OSError, *(kind for client in clients for kind in (client.HTTPError, client.InvalidURL)))
    try:
        return question()
    except HfHubHTTPError as error:
        response = error.response
        if response is None:
            raise explain_transport(error, model_id) from None
        raise explain_status(response.status_code, response.headers, model_id) from None
    except transport as error:
        raise explain_transport(error, model_id) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreachable(
            f"the hub's answer is not a model description ({type(error).__name__})",
            where=model_id,
            hint="check HF_ENDPOINT and the proxy: something else answers in the hub's place",
        ) from None


class _Reader:
    """Reads files of one repository, whole or from the front; retries what is worth it."""

    def __init__(self, client: httpx.Client, repository: _Repository) -> None:
        self.client = client
        self.repository = repository

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file; raises InvalidInput."""
        return parse_object(self.read(name, 0, None), self.label(name))

    def label(self, name: str) -> str:
        """How messages name a file."""
        return f"{self.repository.id}/{name}"

    def header(self, name: str) -> dict[str, TensorFact]:
        """The tensors of a safetensors file, from as few bytes as it takes."""
        data = self.read(name, 0, _FIRST_READ_BYTES)
        end = 8 + header_length(data, self.label(name))
        if end > len(data):
            data += self.read(name, len(data), end)
        if end > len(data):
            raise InvalidInput(
                f"has a truncated safetensors header: {end - 8} bytes announced, {len(data) - 8} there",
                where=self.label(name),
                hint="the repository is broken; choose another revision",
            )
        return parse_header(data[8:end], self.label(name))

    def read(self, name: str, start: int, stop: int | None) -> bytes:
        """Bytes from `start` to `stop` (None: to the end of a JSON file); fewer where the file ends before."""
        import httpx

        url = self.repository.url(name)
        for left in range(_TRIES - 1, -1, -1):
            try:
                return self._read_once(url, name, start, stop)
            except httpx.HTTPStatusError as error:
                if not left or error.response.status_code not in _WORTH_ANOTHER_TRY:
                    raise explain_status(
                        error.response.status_code, error.response.headers, self.repository.id, name
                    ) from None
            except (httpx.HTTPError, OSError) as error:
                if not left or isinstance(error, httpx.TimeoutException):
                    raise explain_transport(error, self.label(name)) from None
            time.sleep(_PAUSE_S)
        raise AssertionError("unreachable: the last try returns or raises")

    def _read_once(self, url: str, name: str, start: int, stop: int | None) -> bytes:
        headers = {} if stop is None else {"Range": f"bytes={start}-{stop - 1}"}
        with self.client.stream("GET", url, headers=headers) as response:
            if response.status_code == 416:  # the file ends before `start`
                return b""
            response.raise_for_status()
            skip = start if response.status_code != 206 else 0
            wanted = _LARGEST_JSON_BYTES if stop is None else skip + stop - start
            data = _first_bytes(response.iter_bytes(), wanted)
        if stop is None and len(data) >= wanted:
            raise InvalidInput("is larger than any such file", where=self.label(name))
        return data[skip:]


def _first_bytes(chunks: Iterable[bytes], wanted: int) -> bytes:
    """At most so many bytes; the rest stays on the wire, also where the server does not know ranges."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) >= wanted:
            break
    return bytes(data[:wanted])


def _weights(reader: _Reader, names: frozenset[str]) -> Weights:
    """Headers of all weight files; where they are out of reach, what an index file says."""
    index = reader.json(INDEX) if INDEX in names else None
    files = counted_safetensors(n for n in names if "/" not in n)
    if index is not None:
        files = index_shards(index, reader.label(INDEX))
        if missing := [f for f in files if f not in names]:
            raise InvalidInput(
                f"names {len(files)} files and the repository lacks {len(missing)}, {missing[0]} first",
                where=reader.label(INDEX),
                hint="the repository is broken; choose another revision",
            )
    notes: tuple[str, ...] = ()
    if files:
        try:
            return Weights(from_headers(_headers(reader, files)))
        except Unreachable as error:
            notes = (f"the headers of the weight files could not be read ({error.what})",)
    elif TORCH_INDEX in names:
        index = reader.json(TORCH_INDEX)
    if index is None:
        return Weights(None, notes)
    return Weights(from_index(index, INDEX if INDEX in names else TORCH_INDEX), notes)


def _headers(reader: _Reader, files: tuple[str, ...]) -> list[dict[str, TensorFact]]:
    """All headers, many at once; the first failure stops the rest."""
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(files))) as pool:
        waiting = [pool.submit(reader.header, file) for file in files]
        try:
            return [future.result() for future in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
