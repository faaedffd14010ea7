"""What one streamed answer held: tokens and when they came, its end, the server's own counts, its errors.

The usual event is read by looking for two marks in its bytes; only the others are parsed. An unescaped quote cannot be
inside JSON text, so `"token_ids":[` is the key and never an answer's words. Shapes: vLLM 0.8 to 0.32,
entrypoints/openai/completion/serving.py and chat_completion/serving.py.
"""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

_IDS = b'"token_ids":['
_OPEN = b'"finish_reason":null'


class BadEvent(Exception):
    """An event that is no answer's; in words for a row's `error`."""


class Tally:
    """Counts while events come; figures are read at the end."""

    __slots__ = (
        "_shared",
        "cached_tokens",
        "chunks",
        "coalesced",
        "done",
        "error",
        "error_code",
        "finish_reason",
        "first_at",
        "first_tokens",
        "gaps",
        "has_counts",
        "last_at",
        "output_tokens",
        "prompt_tokens",
        "tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tokens = 0
        self.chunks = 0  # events with tokens
        self.coalesced = 0  # of these, how many shared a read with another
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.first_tokens = 0  # that came with the first read
        self.gaps = array("d")  # between reads with tokens
        self.has_counts = True  # the server said how many tokens each event holds
        self.finish_reason: str | None = None
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.error: str | None = None
        self.error_code: int | None = None
        self.done = False
        self._shared = False

    def usual(self, reads: list[bytes], stamps: list[float], at: int) -> int:
        """Take in reads from `at` on, as long as each is one chunk that is one event that is tokens and no more.

        Returns where it stopped. This is most of what a client does, hence no calls and no copies in here.
        """
        count = len(reads)
        while at < count:
            read = reads[at]
            size_end = read.find(b"\r\n", 0, 10)
            ids = read.find(_IDS)
            if size_end <= 0 or ids < 0 or read.find(_OPEN) < 0 or not read.startswith(b"data: ", size_end + 2):
                return at
            length = len(read)
            try:
                size = int(read[:size_end], 16)
            except ValueError:
                return at
            if size + size_end + 4 != length:
                return at
            if not read.endswith(b"\n\n\r\n") or read.find(b"\n", size_end + 2) != length - 4:
                return at
            ids += len(_IDS)
            ids_end = read.find(b"]", ids)
            if ids_end > ids:
                self._count(read.count(b",", ids, ids_end) + 1, stamps[at])
            at += 1
        return at

    def event(self, data: bytes, at: float) -> None:
        """One more event, whole since `at`. Raises BadEvent."""
        start = data.find(_IDS)
        if start >= 0 and data.find(_OPEN) >= 0:
            start += len(_IDS)
            end = data.find(b"]", start)
            count = data.count(b",", start, end) + 1 if end > start else 0
        else:
            count = self._parse(data)
        if count:
            self._count(count, at)

    def _count(self, count: int, at: float) -> None:
        self.tokens += count
        self.chunks += 1
        last = self.last_at
        if last is None:
            self.first_at = self.last_at = at
            self.first_tokens = count
        elif at == last:
            self.coalesced += 1 if self._shared else 2
            self._shared = True
            if at == self.first_at:
                self.first_tokens += count
        else:
            self.gaps.append(at - last)
            self.last_at = at
            self._shared = False

    def _parse(self, data: bytes) -> int:
        if data.strip() == b"[DONE]":
            self.done = True
            return 0
        try:
            event = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise BadEvent("an event that is no JSON") from None
        if not isinstance(event, dict):
            raise BadEvent("an event that is no JSON object")
        if event.get("error") is not None or event.get("object") == "error":
            self._fail(event.get("error", event))
            return 0
        return self._answer(event)

    def _fail(self, error: Any) -> None:
        if isinstance(error, dict):
            self.error = str(error.get("message") or error.get("type") or "an error without a message")
            code = error.get("code")
            self.error_code = code if isinstance(code, int) else None
        else:
            self.error = str(error)

    def _answer(self, event: dict[str, Any]) -> int:
        found = event.get("choices")
        choices = [c for c in found if isinstance(c, dict)] if isinstance(found, list) else []
        for choice in choices:
            reason = choice.get("finish_reason")
            if isinstance(reason, str):
                self.finish_reason = reason
        usage = event.get("usage")
        so_far = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if isinstance(usage, dict) and not choices:
            self._usage(usage)
        ids = [c["token_ids"] for c in choices if isinstance(c.get("token_ids"), list)]
        if ids:
            return sum(map(len, ids))
        if choices and isinstance(so_far, int):  # a running count, where token ids are not to be had
            return max(0, so_far - self.tokens)
        texts = sum(_has_words(c) for c in choices)
        if texts:
            self.has_counts = False
        return texts

    def _usage(self, usage: dict[str, Any]) -> None:
        prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
        self.prompt_tokens = prompt if isinstance(prompt, int) else None
        self.output_tokens = output if isinstance(output, int) else None
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        self.cached_tokens = cached if isinstance(cached, int) else None


def _has_words(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    words = delta if isinstance(delta, dict) else choice
    return any(words.get(k) for k in ("text", "content", "reasoning", "reasoning_content", "tool_calls"))
