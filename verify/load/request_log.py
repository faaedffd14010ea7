"""Logs of OpenAI-style requests: where a record has its usage, whether it was refused, and the request itself.

Taken are records as gateways and batch files write them: a request under `body` or `request` (an object, or JSON as
text) or the record itself, and its usage under `usage`, `response` or `response.body`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

NO_USAGE, ERROR_STATUS = "no usage: it failed or was not counted", "answered with an error"
_PLACES = ("body", "request", "response", "messages", "usage")
# What a chat request may ask for; the rest says who asked and how it was delivered, and is not sent.
_SENT = frozenset(
    (
        *("messages", "max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "temperature", "top_p"),
        *("top_k", "min_p", "stop", "stop_token_ids", "seed", "frequency_penalty", "presence_penalty", "logit_bias"),
        *("repetition_penalty", "response_format", "structured_outputs", "tools", "tool_choice", "parallel_tool_calls"),
        *("reasoning_effort", "chat_template_kwargs", "skip_special_tokens", "include_stop_str_in_output"),
    )
)  # fmt: skip


def is_log(record: Mapping[str, Any]) -> bool:
    """Whether a record is a request with what came of it, and not only its lengths."""
    return any(isinstance(record.get(place), dict | list) or (place == "body" and place in record) for place in _PLACES)


def usage_of(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The token counts of an answer; None where there was none."""
    answer = _object(record.get("response"))
    for holder in (record, answer, _object(answer.get("body"))):
        usage = holder.get("usage")
        if isinstance(usage, Mapping) and usage:
            return usage
    return None


def is_refused(record: Mapping[str, Any]) -> bool:
    """Whether the answer had a status of an error."""
    answer = _object(record.get("response"))
    for value in (record.get("status_code"), record.get("status"), answer.get("status_code"), answer.get("status")):
        if isinstance(value, int) and not isinstance(value, bool) and value >= 400:
            return True
    return bool(answer.get("error") or record.get("error"))


def recorded_body(record: Mapping[str, Any], output_tokens: int, note: Callable[[str], None]) -> bytes | None:
    """The chat request of a record, to be sent as it was; None where it has no messages, and then only its lengths
    count. A request without a limit gets the length of its recorded answer as one.
    """
    request = _object(record.get("request"))
    holders = (_object(record.get("body")), request, _object(request.get("body")), record)
    body = next((holder for holder in holders if isinstance(holder.get("messages"), list) and holder["messages"]), None)
    if body is None:
        if any("prompt" in holder for holder in holders):
            note("requests with a text as prompt are not sent as they were: only their lengths count")
        return None
    n = body.get("n", 1)
    sent = {name: value for name, value in body.items() if name in _SENT}
    if n not in (None, 1):
        note("requests that asked for several answers are sent for one")
    if sent.get("max_tokens") is None and sent.get("max_completion_tokens") is None:
        sent["max_tokens"] = output_tokens
        note("requests without max_tokens are sent with the length of their recorded answer")
    left = sorted(name for name in body if name not in _SENT) if body is not record else []
    if left:
        note(f"not sent with recorded requests: {', '.join(left)}")
    return msgspec.json.encode(sent)


def _object(value: Any) -> Mapping[str, Any]:
    """The object that a value is, or is the JSON of; empty where it is none."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}
