"""What a stream held, from events in the shapes that servers send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.client.tally import BadEvent, Tally


def chunk(ids: list[int] | None, reason: str | None = None, text: str = "x", **more: Any) -> bytes:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason, **more}
    if ids is not None:
        choice["token_ids"] = ids
    return json.dumps({"id": "cmpl-1", "choices": [choice]}, separators=(",", ":")).encode()


def usage(prompt: int, output: int, **more: Any) -> bytes:
    counts = {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output, **more}
    return json.dumps({"choices": [], "usage": counts}).encode()


def told(*events: tuple[bytes, float]) -> Tally:
    tally = Tally()
    for data, at in events:
        tally.event(data, at)
    return tally


def test_tokens_times_and_counts() -> None:
    tally = told(
        (chunk([1], prompt_token_ids=[7, 8, 9]), 1.0),
        (chunk([2, 3]), 1.5),
        (chunk([]), 1.6),
        (chunk([4], "length"), 2.5),
        (usage(3, 4, prompt_tokens_details={"cached_tokens": 2}), 2.6),
        (b"[DONE]", 2.6),
    )
    assert (tally.tokens, tally.chunks, tally.first_tokens, tally.first_at, tally.last_at) == (4, 3, 1, 1.0, 2.5)
    assert list(tally.gaps) == [0.5, 1.0]
    assert (tally.prompt_tokens, tally.output_tokens, tally.cached_tokens) == (3, 4, 2)
    assert (tally.finish_reason, tally.done, tally.error, tally.has_counts) == ("length", True, None, True)


def test_events_of_one_read_share_a_stamp_and_are_counted() -> None:
    tally = told((chunk([1]), 1.0), (chunk([2]), 1.0), (chunk([3]), 2.0), (chunk([4]), 3.0), (chunk([5]), 3.0))
    assert (tally.first_tokens, tally.coalesced, tally.chunks) == (2, 4, 5)
    assert list(tally.gaps) == [1.0, 1.0]


@given(st.lists(st.lists(st.integers(0, 200_000), max_size=5), max_size=20), st.text(max_size=30), st.booleans())
def test_the_quick_look_counts_as_a_parser_does(ids: list[list[int]], text: str, has_spaces: bool) -> None:
    separators = (", ", ": ") if has_spaces else (",", ":")
    tally = Tally()
    for at, some in enumerate(ids):
        choice = {"text": text + '"token_ids":[1,2,3]', "finish_reason": None, "token_ids": some}
        choice |= {"prompt_token_ids": [1, 2, 3] if at == 0 else None}
        data = json.dumps({"choices": [choice]}, separators=separators, ensure_ascii=at % 2 == 0)
        tally.event(data.encode("utf-8", "surrogatepass"), float(at))
    assert tally.tokens == sum(map(len, ids))


def test_an_empty_text_may_hold_tokens() -> None:
    assert told((chunk([5], text=""), 1.0)).tokens == 1


def test_a_running_count_serves_where_no_ids_come() -> None:
    running = [
        chunk(None, usage=None)[:-1] + b',"usage":{"prompt_tokens":3,"completion_tokens":%d}}' % n for n in (1, 3, 3)
    ]
    tally = told(*((data, float(at)) for at, data in enumerate(running)), (usage(3, 3), 4.0))
    assert (tally.tokens, tally.chunks, tally.has_counts, tally.output_tokens) == (3, 2, True, 3)


def test_events_nobody_counted_count_one_and_it_is_known() -> None:
    tally = told((chunk(None), 1.0), (chunk(None, text=""), 2.0), (chunk(None), 3.0))
    assert (tally.tokens, tally.has_counts) == (2, False)


def test_chat_chunks() -> None:
    role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    events = [
        {"choices": [role], "prompt_token_ids": [1, 2]},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None, "token_ids": [9]}]},
        {"choices": [{"index": 0, "delta": {"reasoning": "b"}, "finish_reason": "stop", "token_ids": [8, 7]}]},
    ]
    tally = told(*((json.dumps(e, separators=(",", ":")).encode(), float(at)) for at, e in enumerate(events)))
    assert (tally.tokens, tally.first_at, tally.finish_reason) == (3, 1.0, "stop")


@pytest.mark.parametrize(
    ("data", "message", "code"),
    [
        (b'{"error":{"message":"Internal server error","code":500}}', "Internal server error", 500),
        (b'{"error":"out of luck"}', "out of luck", None),
        (b'{"object":"error","message":"old shape","code":400}', "old shape", 400),
        (b'{"error":{"type":"Strange"}}', "Strange", None),
    ],
)  # fmt: skip
def test_error_events(data: bytes, message: str, code: int | None) -> None:
    tally = told((data, 1.0))
    assert (tally.error, tally.error_code) == (message, code)


@pytest.mark.parametrize("data", [b'{"id": nonsense', b"[1,2]", b"hello", b'{"a": "\xff"}', b""])
def test_events_that_are_none(data: bytes) -> None:
    with pytest.raises(BadEvent):
        told((data, 1.0))


@given(
    st.dictionaries(
        st.text(max_size=5), st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=4)
    )
)
def test_no_json_object_breaks_it(value: dict[str, Any]) -> None:
    for key in ("choices", "usage", "error", "other"):
        told((json.dumps({key: value}).encode(), 1.0), (json.dumps({key: [value]}).encode(), 1.0))
        told((json.dumps({"choices": [{"delta": value, "usage": value, key: value}]}).encode(), 1.0))
