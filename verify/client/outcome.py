"""From an exchange to its row: what kind of end it was, and in words why."""

from __future__ import annotations

import math
import re
from array import array

import msgspec

from verify.client.exchange import End, Exchange
from verify.client.tally import Tally
from verify.load.types import PlannedRequest
from verify.record.types import Outcome, RequestRow

_LONGEST = 300
_BEARER = re.compile(r"(?i)\b(bearer|api[-_ ]?key)(\W{1,3})\S+")


def row_of(exchange: Exchange, *, zero: float, process: int, secret: str | None) -> RequestRow:
    """The row of an exchange that has ended. Times count from `zero`; `secret` is in no row."""
    request, tally, head = exchange.request, exchange.tally, exchange.head
    outcome, error = _outcome(exchange)

    def since(at: float | None) -> float | None:
        return None if at is None else at - zero

    return RequestRow(
        index=request.index,
        phase=request.phase,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        outcome=outcome,
        scheduled_s=since(exchange.scheduled_at),
        sent_s=since(exchange.sent_at),
        first_token_s=since(tally.first_at),
        last_token_s=since(tally.last_at),
        ended_s=since(exchange.ended_at),
        first_chunk_tokens=tally.first_tokens if tally.first_at is not None else None,
        max_stall_s=max(tally.gaps) if tally.gaps else None,
        chunk_gaps_s=_percentiles(tally.gaps),
        served_prompt_tokens=tally.prompt_tokens,
        served_output_tokens=tally.output_tokens,
        served_cached_tokens=tally.cached_tokens,
        streamed_tokens=tally.tokens,
        chunks=tally.chunks,
        status=head.status if head is not None else None,
        finish_reason=tally.finish_reason,
        error=redacted(error, secret) if error else None,
        retries=exchange.retries,
        process=process,
        is_recorded=request.body is not None,
    )


def redacted(text: str, secret: str | None) -> str:
    """One short line without the key."""
    if secret:
        text = text.replace(secret, "***")
    text = _BEARER.sub(r"\1\2***", " ".join(text.split()))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _percentiles(gaps: array[float]) -> tuple[float, float, float] | None:
    """p50, p95 and p99 by nearest rank."""
    if not gaps:
        return None
    ordered = sorted(gaps)
    p50, p95, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95, 0.99))
    return p50, p95, p99


def _outcome(exchange: Exchange) -> tuple[Outcome, str]:
    match exchange.end:
        case End.CANCELLED:
            return "cancelled", ""
        case End.ABANDONED | None:
            return "abandoned", exchange.problem or "still open when the run was stopped"
        case End.TIMEOUT:
            return "client_timeout", exchange.problem
        case End.NO_CONNECTION:
            return "connect_error", exchange.problem
        case End.UNREADABLE:
            return "stream_error", exchange.problem
        case End.LOST if exchange.head is None:
            return "connect_error", exchange.problem
    head = exchange.head
    if head is None:
        return "connect_error", exchange.problem
    if head.status != 200:
        return _refusal(exchange, head.status)
    if not head.is_event_stream:
        if exchange.end is End.LOST:
            return "truncated", exchange.problem
        return "stream_error", f"the answer is no event stream: {_message(exchange.error_body)}"
    return _streamed(exchange)


def _refusal(exchange: Exchange, status: int) -> tuple[Outcome, str]:
    head, said = exchange.head, _message(exchange.error_body)
    error = f"HTTP {status}: {said}" if said else f"HTTP {status}"
    if 300 <= status < 400:
        where = head.headers.get("location", "elsewhere") if head is not None else "elsewhere"
        return "http_4xx", f"HTTP {status}: redirects to {where}, which is not followed; give that server's own URL"
    if status == 503:
        return "rejected", error
    if 400 <= status < 500:
        expected = exchange.request.expect in ("refusal", "refusal_or_shortened") and status not in (401, 403, 404, 429)
        return ("refused" if expected else "http_4xx"), error
    return ("http_5xx" if status >= 500 else "stream_error"), error


def _streamed(exchange: Exchange) -> tuple[Outcome, str]:
    tally = exchange.tally
    if tally.error is not None:
        if tally.error_code == 503 and tally.tokens == 0:
            return "rejected", tally.error
        return "stream_error", f"error event after {tally.tokens} tokens: {tally.error}"
    if tally.finish_reason in ("abort", "error"):
        return "stream_error", f"the server ended it after {tally.tokens} tokens: finish_reason {tally.finish_reason}"
    if tally.finish_reason is None:
        return "truncated", exchange.problem or f"the stream ended after {tally.tokens} tokens without finish_reason"
    if exchange.end is End.LOST and not tally.done:
        return "truncated", f"{exchange.problem}, after finish_reason and before [DONE]"
    return _lengths(exchange.request, tally)


def _lengths(request: PlannedRequest, tally: Tally) -> tuple[Outcome, str]:
    prompt, output = tally.prompt_tokens, tally.output_tokens
    if prompt is None or output is None:
        return "wrong_length", "no usage in the answer: its lengths cannot be checked"
    if tally.has_counts and tally.tokens != output:
        return "wrong_length", f"usage says {output} tokens, the stream held {tally.tokens}"
    if tally.tokens == 0:
        return "wrong_length", "an answer without a token"
    if request.body is not None:
        return "ok", ""
    if prompt != request.prompt_tokens:
        return "wrong_length", f"{request.prompt_tokens} prompt tokens were sent, {prompt} served"
    if request.expect in ("refusal", "refusal_or_shortened"):
        if output < request.output_tokens and tally.finish_reason == "length":
            return "shortened", f"{request.output_tokens} tokens were asked for, {output} served"
        return "wrong_length", f"a refusal was expected, {output} of {request.output_tokens} tokens were served"
    if output != request.output_tokens:
        return "wrong_length", (
            f"{request.output_tokens} tokens were asked for, {output} served (finish_reason {tally.finish_reason})"
        )
    return "ok", ""


def _message(body: bytes) -> str:
    """What an error's body says: vLLM's, FastAPI's, or its first words."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:_LONGEST].decode("utf-8", "replace")
    if isinstance(value, dict):
        inner = value.get("error", value.get("detail", value.get("message")))
        if isinstance(inner, dict):
            inner = inner.get("message", inner)
        if inner is not None:
            return str(inner)
    return body[:_LONGEST].decode("utf-8", "replace")
