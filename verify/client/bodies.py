"""Request bodies: exact prompts as token ids, exact lengths asked for, all encoded before the clock starts.

Beyond `MEMORY_BYTES` they wait in an unnamed file, so that memory stays bounded whatever the length of the run.
Fields: vLLM 0.32, entrypoints/openai/completion/protocol.py CompletionRequest.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable
from typing import IO, Any

import msgspec

from verify.client.types import Target
from verify.load.types import PlannedRequest

MEMORY_BYTES = 256 * 2**20
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"

PromptIds = Callable[[PlannedRequest], list[int]]


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """Which optional fields the server takes; found out once by a probe.

    Without `return_token_ids` the running count of `continuous_usage` says how many tokens an event holds.
    """

    return_token_ids: bool = True
    continuous_usage: bool = False
    cache_salt: bool = True


def prompt_ids_of(target: Target, seed: int) -> PromptIds:
    """The schedule's own way from a request to its prompt."""
    prompt_ids = importlib.import_module("verify.load.prompts").prompt_ids

    def ids(request: PlannedRequest) -> list[int]:
        found = prompt_ids(request, seed=seed, vocab_size=target.vocab_size, avoid_ids=target.avoid_ids)
        return list(found)

    return ids


def completion_body(request: PlannedRequest, ids: list[int], target: Target, fields: Fields) -> bytes:
    """A request for exactly `output_tokens` tokens after exactly these prompt tokens.

    `min_tokens` is left out where a shortened answer or a refusal is expected: with it vLLM 0.32 refuses what it would
    shorten for other callers.
    """
    body: dict[str, Any] = {"model": target.model, "prompt": ids, "max_tokens": request.output_tokens}
    if request.expect in ("answer", "cancel"):
        body["min_tokens"] = request.output_tokens
    body |= {"ignore_eos": True, "temperature": 0, **_streaming(target, fields, {})}
    return msgspec.json.encode(body)


def chat_body(recorded: bytes, target: Target, fields: Fields) -> bytes:
    """A recorded request, as it is but for the model's name, streaming, counts and the run's cache salt.

    Raises ValueError where it is no JSON object.
    """
    try:
        body = msgspec.json.decode(recorded)
    except msgspec.DecodeError as error:
        raise ValueError(f"a recorded request is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise ValueError("a recorded request is no JSON object")
    options = body.get("stream_options")
    body |= {"model": target.model, **_streaming(target, fields, options if isinstance(options, dict) else {})}
    return msgspec.json.encode(body)


def _streaming(target: Target, fields: Fields, options: dict[str, Any]) -> dict[str, Any]:
    options = {**options, "include_usage": True}
    if fields.continuous_usage:
        options["continuous_usage_stats"] = True
    parts: dict[str, Any] = {"stream": True, "stream_options": options}
    if fields.return_token_ids:
        parts["return_token_ids"] = True
    if fields.cache_salt:
        parts["cache_salt"] = target.salt
    return parts


class BodyStore:
    """Bodies in the order they were put in."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._held = 0
        self._places: list[bytes | tuple[int, int]] = []
        self._file: IO[bytes] | None = None
        self._end = 0

    def put(self, body: bytes) -> None:
        """Keep one more."""
        if self._held + len(body) <= self._memory_bytes:
            self._held += len(body)
            self._places.append(body)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed by close)
        os.pwrite(self._file.fileno(), body, self._end)
        self._places.append((self._end, len(body)))
        self._end += len(body)

    def take(self, index: int) -> bytes:
        """One body, once; its memory is free then."""
        place = self._places[index]
        if isinstance(place, bytes):
            self._places[index] = b""
            return place
        return b"" if self._file is None else os.pread(self._file.fileno(), place[1], place[0])

    def close(self) -> None:
        """Forget all."""
        self._places.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
