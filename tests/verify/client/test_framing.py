"""HTTP/1.1 responses, cut anywhere."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.client.framing import MAX_HEAD_BYTES, Body, FramingError, Head, read_head


def body_of(head: Head, pieces: list[bytes]) -> tuple[bytes, Body]:
    body = Body(head)
    return b"".join(part for piece in pieces for part in body.feed(piece)), body


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
    return [data[start:stop] for start, stop in itertools.pairwise(edges)]


CHUNKED = Head(200, "HTTP/1.1", {"transfer-encoding": "chunked"})


@given(st.lists(st.binary(min_size=1, max_size=30)), st.lists(st.integers(0), max_size=40), st.booleans())
def test_chunks_any_way_cut(parts: list[bytes], cuts: list[int], has_extras: bool) -> None:
    extension, trailer = (b";x=1", b"X-T: 1\r\n") if has_extras else (b"", b"")
    data = b"".join(b"%X%b\r\n%b\r\n" % (len(p), extension, p) for p in parts) + b"0\r\n" + trailer + b"\r\n"
    for pieces in (cut(data, cuts), [data], [data[i : i + 1] for i in range(len(data))]):
        whole, body = body_of(CHUNKED, pieces)
        assert whole == b"".join(parts)
        assert body.ended
        assert body.extra == b""
        without_end = Body(CHUNKED)
        for piece in cut(data[:-1], cuts):
            without_end.feed(piece)
        assert not without_end.ended


@given(st.binary(max_size=50), st.lists(st.integers(0), max_size=10))
def test_a_length_any_way_cut(content: bytes, cuts: list[int]) -> None:
    head = Head(200, "HTTP/1.1", {"content-length": str(len(content))})
    whole, body = body_of(head, cut(content, cuts))
    assert whole == content
    assert body.ended
    body.feed(b"more")
    assert body.extra == b"more"


def test_without_framing_the_connection_ends_it() -> None:
    whole, body = body_of(Head(200, "HTTP/1.0", {}), [b"a", b"b"])
    assert whole == b"ab"
    assert body.ends_with_connection
    assert not body.ended


@pytest.mark.parametrize("data", [b"\r\n", b"xyz\r\n", b"-5\r\n", b"5\r\nabcdefg\r\n", b"1" * 2000, b"1_0\r\n"])
def test_chunks_that_are_none(data: bytes) -> None:
    with pytest.raises(FramingError):
        body_of(CHUNKED, [data])


@pytest.mark.parametrize("headers", [{"transfer-encoding": "gzip"}, {"content-length": "-1"}, {"content-length": "x"}])
def test_bodies_that_cannot_be_read(headers: dict[str, str]) -> None:
    with pytest.raises(FramingError):
        Body(Head(200, "HTTP/1.1", headers))


def test_a_head() -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nX:  y \r\n\r\nbody"
    for length in range(len(data) - 4):
        assert read_head(data[:length]) is None
    found = read_head(data)
    assert found is not None
    head, start = found
    assert (head.status, data[start:], head.headers["x"]) == (200, b"body", "y")
    assert head.is_event_stream
    assert head.keeps_alive


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (Head(200, "HTTP/1.1", {"connection": "Close"}), False),
        (Head(200, "HTTP/1.0", {}), False),
        (Head(200, "HTTP/1.0", {"connection": "keep-alive"}), True),
    ],
)
def test_whether_a_connection_is_kept(head: Head, keeps: bool) -> None:
    assert head.keeps_alive is keeps


@pytest.mark.parametrize(
    "data",
    [b"\x15\x03\x01\x00\x02\x02", b"SSH-2.0-x\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * MAX_HEAD_BYTES],
)  # fmt: skip
def test_heads_that_are_none(data: bytes) -> None:
    with pytest.raises(FramingError):
        read_head(data)
