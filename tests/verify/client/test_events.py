"""Server-sent events come out the same however the bytes were cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.client.events import MAX_LINE_BYTES, EventSplitter, LineTooLong

TEXTS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=40)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    splitter = EventSplitter()
    return [e for start, stop in itertools.pairwise(edges) for e in splitter.feed(data[start:stop])]


@given(st.lists(st.tuples(TEXTS, st.booleans(), st.booleans(), st.booleans())), st.lists(st.integers(0), max_size=60))
def test_any_cut_gives_the_same_events(events: list[tuple[str, bool, bool, bool]], cuts: list[int]) -> None:
    data = b""
    for text, has_space, is_crlf, has_comment in events:
        end = b"\r\n" if is_crlf else b"\n"
        data += (b": noise" + end + end if has_comment else b"") + b"data:" + (b" " if has_space else b"")
        data += text.encode() + end + end
    expected = [t.encode() if s else t.encode().removeprefix(b" ") for t, s, _, _ in events]
    assert split(data, cuts) == expected == split(data, list(range(len(data))))


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\xe2\x80\xa8b\xe2\x80\xa9c\xc2\x85d\n\n", [b"a\xe2\x80\xa8b\xe2\x80\xa9c\xc2\x85d"]),
        (b"data: one\ndata: two\n\n", [b"one\ntwo"]),
        (b"data:{}\n\ndata:  x\n\n", [b"{}", b" x"]),
        (b"event: message\nid: 5\nretry: 10\ndata: x\n\n", [b"x"]),
        (b": keep-alive\n\n: keep-alive\r\n\r\n\n\n", []),
        (b"\xef\xbb\xbfid: 1\n\ndata\n\n", [b""]),
        (b"data: unfinished\n", []),
    ],
)  # fmt: skip
def test_the_standards_cases(data: bytes, events: list[bytes]) -> None:
    assert split(data, []) == events == split(data, list(range(len(data))))


def test_a_line_without_an_end_is_given_up() -> None:
    splitter = EventSplitter()
    for _ in range(MAX_LINE_BYTES // 2**20 - 1):
        assert splitter.feed(b"x" * 2**20) == []
    with pytest.raises(LineTooLong):
        splitter.feed(b"x" * 2**21)


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    splitter = EventSplitter()
    for _ in range(100_000):
        assert not splitter.feed(b"x" * 20)
    assert splitter.feed(b"\ndata: y\n\n") == [b"y"]
