"""Traces in the shapes they are published in; every row is kept or counted, and a wrong one is named by its line."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from verify.load.trace_file import read_trace

SHARED = Path(os.environ.get("KVADVISE_SHARED", Path(__file__).resolve().parents[4] / "shared"))

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109\r\n2023-11-16 18:15:51.0000000,0,5"
)
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,0,0,0,API log\n"
)
BURST_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,12,0.7,ChatGPT,472,18,490,Conversation log\n6,12,0.1,GPT-4,30,8,38,API log\n"
)
SHAREGPT = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n74,918,992,0.08\n290,905,1195,0.32\n"
LOG = "\n".join(
    json.dumps(record)
    for record in (
        {"ts": 10.5, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "user": "u",
         "usage": {"prompt_tokens": 12, "completion_tokens": 9}},
        {"ts": 12.0, "request": {"messages": []}, "response": {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}},
    )
)  # fmt: skip


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "text", "rows", "dropped"),
    [
        ("azure.csv", AZURE, [(374, 44, 0.0), (396, 109, 4.314579)], 1),
        ("burst.csv", BURST, [(472, 18, 0.0)], 1),
        ("burst3.csv", BURST_3, [(472, 18, 0.0), (30, 8, 1.0)], 0),
        ("lengths.csv", SHAREGPT, [(74, 918, None), (290, 905, None)], 0),
        ("own.csv", "prompt_tokens,output_tokens,timestamp\n7,8,100\n5,6,99.5\n", [(5, 6, 0.0), (7, 8, 0.5)], 0),
        ("ms.jsonl", '{"timestamp_ms": 1500, "input_len": 3, "output_len": 4}\n\n', [(3, 4, 0.0)], 0),
        ("log.jsonl", LOG, [(12, 9, 0.0), (5, 1, 1.5)], 0),
        ("bom.csv", "\ufeffprompt_tokens, output_tokens\n7,8\n", [(7, 8, None)], 0),
    ],
)
def test_published_shapes_are_read(
    tmp_path: Path, name: str, text: str, rows: list[tuple[int, int, float | None]], dropped: int
) -> None:
    trace = read_trace(write(tmp_path, name, text))
    found = [(r.prompt_tokens, r.output_tokens, None if r.at_s is None else pytest.approx(r.at_s)) for r in trace.rows]
    assert found == rows
    assert trace.read == len(rows) + dropped == len(trace.rows) + sum(trace.dropped.values())


def test_a_log_of_requests_gives_them_back(tmp_path: Path) -> None:
    first, second = read_trace(write(tmp_path, "log.jsonl", LOG)).rows
    assert first.body is not None
    assert json.loads(first.body) == {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    assert second.body == b'{"messages": []}'


def test_compressed_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv.gz"
    path.write_bytes(gzip.compress(AZURE.encode()))
    assert len(read_trace(path).rows) == 2


def mooncake(n: int, length: int, blocks: int) -> str:
    return "\n".join(
        json.dumps({"timestamp": 3000 * (i // 4), "input_length": length, "output_length": 5,
                    "hash_ids": list(range(blocks))})
        for i in range(n)
    )  # fmt: skip


def test_coarse_times_are_spread_and_said(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "m.jsonl", mooncake(12, 700, 2)))
    assert [r.at_s for r in trace.rows] == pytest.approx([i * 0.75 for i in range(12)])
    assert "12 requests at 3 times" in trace.notes[0]
    assert trace.rows[0].block_tokens == 512


@pytest.mark.parametrize(("length", "blocks", "size"), [(700, 2, 512), (512, 1, 512), (30, 2, 16), (6758, 14, 512)])
def test_the_block_size_follows_from_the_ids(tmp_path: Path, length: int, blocks: int, size: int) -> None:
    assert read_trace(write(tmp_path, "m.jsonl", mooncake(1, length, blocks))).rows[0].block_tokens == size


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("m.jsonl", mooncake(2, 2000, 2), "m.jsonl:1: 2 block ids cannot hold 2000"),
        ("a.csv", "a,b\n1,2\n", "no column for the prompt's tokens among a, b"),
        ("a.csv", "prompt_tokens,b\n1,2\n", "no column for the answer's tokens"),
        ("a.csv", "prompt_tokens,output_tokens\n1,x\n", "a.csv:2: output_tokens is 'x'"),
        ("a.csv", "prompt_tokens,output_tokens\n1,2\n1.5,2\n", "a.csv:3: prompt_tokens is '1.5'"),
        ("a.csv", "prompt_tokens,output_tokens\n1,2,3\n", "a.csv:2: has another number of columns"),
        ("a.csv", "prompt_tokens,output_tokens,time\n1,2,noon\n", "a.csv:2: time is 'noon'"),
        ("a.csv", "", "is empty"),
        ("a.csv", "prompt_tokens,output_tokens\n0,0\n", "has no request in it"),
        ("a.jsonl", "{", "a.jsonl:1: is no JSON"),
        ("a.jsonl", "[1]", "a.jsonl:1: is no JSON object"),
        ("a.jsonl", '{"prompt_tokens": -1, "output_tokens": 2}', "a.jsonl:1: prompt_tokens is -1"),
        ("a.jsonl", '{"prompt_tokens": true, "output_tokens": 2}', "prompt_tokens is True"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_trace(write(tmp_path, name, text))
    assert said in str(caught.value)
    assert caught.value.hint


def test_a_missing_file_and_bytes_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read the trace"):
        read_trace(tmp_path / "no.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="no text in UTF-8"):
        read_trace(tmp_path / "b.csv")


@settings(max_examples=300)
@given(st.text(max_size=200), st.sampled_from(["x.csv", "x.jsonl"]))
def test_no_text_breaks_it(tmp_path_factory: pytest.TempPathFactory, text: str, name: str) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_text(text, encoding="utf-8", newline="")
    try:
        trace = read_trace(path)
    except InvalidInput as error:
        assert error.where  # noqa: PT017 (it may raise, and then says where)
        return
    assert trace.read == len(trace.rows) + sum(trace.dropped.values())


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces are not beside the checkout")
@pytest.mark.parametrize(
    ("name", "read", "first"),
    [
        ("AzureLLMInferenceTrace_conv.csv", 19366, (374, 44, 0.0)),
        ("mooncake_conversation_first25min.jsonl", None, (6758, 500, 0.0)),
        ("sharegpt_8k_lengths_llama2.csv", 30731, (74, 918, None)),
    ],
)
def test_real_traces_are_read_whole(name: str, read: int | None, first: tuple[int, int, float | None]) -> None:
    trace = read_trace(SHARED / "traces" / name)
    assert read is None or trace.read == read
    assert trace.read == len(trace.rows) + sum(trace.dropped.values())
    row = trace.rows[0]
    assert (row.prompt_tokens, row.output_tokens, row.at_s) == first
    times = [r.at_s for r in trace.rows if r.at_s is not None]
    assert times == sorted(times)
