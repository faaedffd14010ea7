"""A whole answer, cut into reads anywhere: the same row but for its times."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verify.client.harness import request
from verify.client.exchange import Exchange
from verify.client.outcome import row_of
from verify.client.tally import Tally
from verify.record.types import RequestRow


def answer(ids: list[int], *, crlf: bool = False, text: str = "x", prompt: int = 24) -> bytes:
    """As vLLM streams it."""
    end = b"\r\n" if crlf else b"\n"
    events = []
    for at, token in enumerate(ids):
        reason = "length" if at == len(ids) - 1 else None
        choice = {"index": 0, "text": text, "finish_reason": reason, "prompt_token_ids": None, "token_ids": [token]}
        events.append(json.dumps({"choices": [choice]}, separators=(",", ":"), ensure_ascii=False).encode())
    counts = {"prompt_tokens": prompt, "completion_tokens": len(ids), "total_tokens": prompt + len(ids)}
    events += [json.dumps({"choices": [], "usage": counts}).encode(), b"[DONE]"]
    parts = [b"data: " + event + end + end for event in events]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + chunks + b"0\r\n\r\n"


def row(data: bytes, cuts: list[int], read_each: bool, output: int) -> RequestRow:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    exchange = Exchange(request(output=output), None)
    exchange.sent_at = 0.0
    for at, (start, stop) in enumerate(itertools.pairwise(edges)):
        exchange.pieces.append(data[start:stop])
        exchange.stamps.append(1.0 + at)
        if read_each:
            exchange.read()
    exchange.read()
    return row_of(exchange, zero=0.0, process=0, secret=None)


def timeless(found: RequestRow) -> RequestRow:
    changes = dict.fromkeys(
        ("first_token_s", "last_token_s", "ended_s", "max_stall_s", "chunk_gaps_s", "first_chunk_tokens")
    )
    return msgspec.structs.replace(found, **changes)


IDS = st.lists(st.integers(0, 99_999), min_size=1, max_size=12)


@settings(deadline=None)
@given(IDS, st.text(max_size=20), st.lists(st.integers(0), max_size=80), st.booleans(), st.booleans())
def test_any_cut_gives_the_same_row(ids: list[int], text: str, cuts: list[int], each: bool, crlf: bool) -> None:
    data = answer(ids, text=text.encode("utf-8", "replace").decode(), crlf=crlf)
    found = row(data, cuts, each, len(ids))
    assert found.outcome == "ok", found.error
    assert (found.streamed_tokens, found.served_output_tokens) == (len(ids), len(ids))
    assert timeless(found) == timeless(row(data, list(range(len(data))), True, len(ids)))
    assert timeless(found) == timeless(row(data, [], False, len(ids)))


@settings(deadline=None)
@given(IDS, st.integers(0), st.lists(st.integers(0), max_size=20))
def test_an_answer_that_breaks_off_is_never_ok(ids: list[int], length: int, cuts: list[int]) -> None:
    data = answer(ids)
    found = row(data[: length % len(data)], cuts, False, len(ids))
    assert found.outcome == "abandoned"  # until its connection's end or the clock says more


USUAL = b'data: {"choices":[{"text":"a","finish_reason":null,"token_ids":[5,6]}]}\n\n'


def chunked(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)


@pytest.mark.parametrize(
    "read",
    [
        chunked(USUAL)[1:],  # its size is another
        chunked(USUAL) + b"0\r\n\r\n",
        chunked(USUAL)[:-1],
        chunked(USUAL + USUAL),
        chunked(USUAL[:-2] + b"\ndata: {}\n\n"),
        chunked(USUAL.replace(b"data: ", b"data:")),
        chunked(USUAL.replace(b"\n", b"\r\n")),
        chunked(USUAL.replace(b"null", b'"length"')),
        chunked(USUAL.replace(b"token_ids", b"tokens")),
        chunked(b"data: [DONE]\n\n"),
        b"x" + chunked(USUAL),
        b"",
    ],
)
def test_only_a_read_of_one_event_in_one_chunk_is_the_usual(read: bytes) -> None:
    tally = Tally()
    reads = [chunked(USUAL), chunked(USUAL), read, chunked(USUAL)]
    assert tally.usual(reads, [1.0, 2.0, 3.0, 4.0], 0) == 2
    assert (tally.tokens, tally.last_at) == (4, 2.0)
    assert tally.usual(reads, [1.0, 2.0, 3.0, 4.0], 3) == 4


@pytest.mark.parametrize("line", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"])
def test_informational_answers_come_before_the_real_one(line: bytes) -> None:
    assert row(line + answer([1, 2]), [], False, 2).outcome == "ok"


def test_bytes_after_the_end_are_seen() -> None:
    exchange = Exchange(request(output=1), None)
    exchange.pieces, exchange.stamps = [answer([1]) + b"HTTP/1.1 200 OK\r\n"], [1.0]
    assert exchange.read()
    assert exchange.body is not None
    assert exchange.body.extra == b"HTTP/1.1 200 OK\r\n"
